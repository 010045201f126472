"""Paged attention in plain PyTorch: what the CPU runs, exact in float32."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F

from octavo.attention.interface import AttentionParams, AttentionSetup, CommonAttentionMetadata
from octavo.attention.row_groups import PageLayout, RowGroup, StepRows, row_groups

# Gathered keys and values held at a time; a larger group of rows is computed in parts.
_MAX_GATHER_BYTES = 64 << 20
_MAX_SCORES = 16 << 20  # queries times keys of a group: elements of its mask
_CACHE_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True, eq=False)
class _DecodeGroup:
    """R rows of one token."""

    pages: RowGroup
    tokens: slice | torch.Tensor  # of the step, in the order of the rows
    mask: torch.Tensor  # [R, 1, L] additive, 0 or -inf
    newest: torch.Tensor  # [R, 1] int64: a row's last key among the L


@dataclass(frozen=True, slots=True, eq=False)
class _PrefillGroup:
    """R rows of up to Q tokens."""

    pages: RowGroup
    tokens: slice | torch.Tensor  # of the step, row after row
    padded: slice | torch.Tensor  # [R * Q]: the token at each place of the batch
    real: slice | torch.Tensor  # places whose token is no padding, in the order of `tokens`
    mask: torch.Tensor | None  # [R, 1, Q, L] additive; None: query i sees keys 0..i
    newest: torch.Tensor  # [R, 1] int64: a row's last key among the L


@dataclass(slots=True, eq=False)
class SDPAMetadata:
    """One step: rows on the host, and their groups per window, made when a layer first asks."""

    rows: StepRows
    num_tokens: int
    groups: dict[int | None, list[_DecodeGroup | _PrefillGroup]] = field(default_factory=dict)


class _Buffer:
    """Memory used by every layer in turn: sequences grow, and fresh pages cost more than use."""

    def __init__(self, limit: int, dtype: torch.dtype, device: torch.device) -> None:
        self._limit = limit
        self._data = torch.empty(0, dtype=dtype, device=device)

    def take(self, size: int) -> torch.Tensor:
        """`size` uninitialised elements; grown with room to spare up to the limit."""
        if self._data.numel() < size:
            roomy = min(self._data.numel() * 3 // 2, self._limit)
            self._data = self._data.new_empty(max(size, roomy))
        return self._data[:size]


class TorchSDPA:
    """Gathers the blocks of like rows with one index and computes them as one dense batch.

    Decode rows are products with the query heads of a KV head as one small matrix, which measured
    faster than scaled_dot_product_attention; longer rows use the latter. The number of tensor
    calls depends on the spread of lengths, not on the number of rows.
    """

    name: ClassVar[str] = "torch_sdpa"

    def __init__(self, setup: AttentionSetup) -> None:
        params = setup.params
        self._device = setup.device
        per_key = 2 * params.num_kv_heads * params.head_size
        self._max_keys = _MAX_GATHER_BYTES // (per_key * setup.kv_dtype.itemsize)
        self._gathered = _Buffer(self._max_keys * per_key, setup.kv_dtype, setup.device)
        self._scores = _Buffer(self._max_keys * params.num_heads, torch.float32, setup.device)

    @classmethod
    def unsupported(cls, setup: AttentionSetup) -> list[str]:
        """Why this backend can't serve `setup`, one reason each; empty when it can."""
        reasons = []
        if setup.kv_dtype not in _CACHE_DTYPES:
            reasons.append(f"it reads no cache of {setup.kv_dtype}")
        if setup.params.sinks is not None:
            reasons.append("it has no attention sinks")
        if setup.batch_invariant:
            reasons.append("its order of sums depends on the rows of a step")
        return reasons

    def warm_up(self) -> None:
        """Nothing to prepare."""

    def build_metadata(self, batch: CommonAttentionMetadata) -> SDPAMetadata:
        """Bring the rows to the host, where they are already when the device is the CPU."""
        count = batch.num_rows
        starts = batch.query_start_loc_cpu[: count + 1].astype(np.int64)
        slots = batch.slots[:count].cpu().numpy()
        rows = StepRows(
            starts=starts[:-1],
            query_lens=np.diff(starts),
            seq_lens=batch.seq_lens[:count].cpu().numpy().astype(np.int64),
            blocks=batch.block_table.cpu().numpy()[slots],
        )
        return SDPAMetadata(rows, batch.num_tokens)

    def forward(
        self, q: torch.Tensor, kv: torch.Tensor, metadata: SDPAMetadata, params: AttentionParams
    ) -> torch.Tensor:
        """Attention of every token of the step; see AttentionBackend.forward."""
        groups = metadata.groups.get(params.sliding_window)
        if groups is None:
            groups = self._plan(metadata.rows, PageLayout.of(kv), params.sliding_window)
            metadata.groups[params.sliding_window] = groups
        if len(groups) == 1 and metadata.num_tokens == q.shape[0]:
            return self._attend(q, kv, groups[0], params)
        out = q.new_zeros(q.shape[0], params.num_heads * params.head_size)
        for group in groups:
            out[group.tokens] = self._attend(q, kv, group, params)
        return out

    def _plan(
        self, rows: StepRows, layout: PageLayout, window: int | None
    ) -> list[_DecodeGroup | _PrefillGroup]:
        groups = row_groups(rows, layout, window, self._max_keys, _MAX_SCORES, self._device)
        return [
            self._decode_group(rows, group, window)
            if group.query_len == 1
            else self._prefill_group(rows, group, window)
            for group in groups
        ]

    def _decode_group(self, step: StepRows, group: RowGroup, window: int | None) -> _DecodeGroup:
        starts = step.starts[group.rows]
        newest = step.seq_lens[group.rows, None] - 1
        key = group.first_key[:, None] + np.arange(group.key_len)
        visible = key <= newest
        if window is not None:
            visible &= key > newest - window
        contiguous = int(starts[-1] - starts[0]) + 1 == len(starts)
        tokens = slice(int(starts[0]), int(starts[-1]) + 1) if contiguous else self._index(starts)
        newest_key = self._index(newest - group.first_key[:, None])
        return _DecodeGroup(group, tokens, self._additive(visible[:, None]), newest_key)

    def _prefill_group(self, step: StepRows, group: RowGroup, window: int | None) -> _PrefillGroup:
        starts, lens = step.starts[group.rows], step.query_lens[group.rows]
        past = step.seq_lens[group.rows] - lens
        # Padding repeats the row's last query, so that every query sees a key.
        place = np.minimum(np.arange(group.query_len), lens[:, None] - 1)
        mask = None
        if past.any() or (window is not None and group.query_len > window):
            query = (past[:, None] + place)[:, :, None]
            key = group.first_key[:, None, None] + np.arange(group.key_len)
            visible = key <= query
            if window is not None:
                visible &= key > query - window
            mask = self._additive(visible[:, None])
        newest = self._index((step.seq_lens[group.rows] - 1 - group.first_key)[:, None])
        if group.num_rows == 1:
            tokens = slice(int(starts[0]), int(starts[0] + lens[0]))
            return _PrefillGroup(group, tokens, tokens, slice(None), mask, newest)
        padded = starts[:, None] + place
        real = np.arange(group.query_len) < lens[:, None]
        return _PrefillGroup(
            group,
            tokens=self._index(padded[real]),
            padded=self._index(padded.reshape(-1)),
            real=self._index(np.flatnonzero(real)),
            mask=mask,
            newest=newest,
        )

    def _attend(
        self,
        q: torch.Tensor,
        kv: torch.Tensor,
        group: _DecodeGroup | _PrefillGroup,
        params: AttentionParams,
    ) -> torch.Tensor:
        """The group's tokens, [n, Hq * D]."""
        keys, values = self._gather(kv, group.pages)
        if isinstance(group, _DecodeGroup):
            out = self._decode(q[group.tokens].float(), keys, values, group, params)
        else:
            plain = params.soft_cap is None and params.alibi_slopes is None
            prefill = _prefill if plain else _prefill_by_scores
            out = prefill(q[group.padded].float(), keys, values, group, params)[group.real]
        return out.to(q.dtype)

    def _gather(self, kv: torch.Tensor, group: RowGroup) -> torch.Tensor:
        """The group's keys and values, [2, R, Hkv, L, D] float32, zero behind sequences' ends."""
        num_blocks, _, num_kv_heads, block_size, head_size = kv.shape
        page = block_size * head_size
        num_pages = (num_blocks - 1) * kv.stride(0) // page + 2 * num_kv_heads
        cache = kv.as_strided((num_pages, page), (page, 1))
        pages = self._gathered.take(group.head_pages.numel() * page).view(-1, page)
        torch.index_select(cache, 0, group.head_pages, out=pages)
        tokens = pages.view(-1, head_size).index_fill_(0, group.stale, 0.0)
        return tokens.view(2, group.num_rows, num_kv_heads, group.key_len, head_size).float()

    def _decode(
        self,
        q: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        group: _DecodeGroup,
        params: AttentionParams,
    ) -> torch.Tensor:
        """q[R, Hq, D], keys and values [R, Hkv, L, D] -> [R, Hq * D]."""
        num_rows, num_kv_heads, key_len, head_size = keys.shape
        # One matrix of the query heads that share a KV head.
        queries = (q * params.scale).reshape(num_rows * num_kv_heads, -1, head_size)
        scores = self._scores.take(q.shape[0] * q.shape[1] * key_len)
        scores = scores.view(*queries.shape[:2], key_len)
        torch.bmm(queries, keys.flatten(0, 1).transpose(1, 2), out=scores)
        by_head = scores.view(num_rows, -1, key_len)
        _adjust(by_head[:, :, None], group.newest, params)
        by_head.add_(group.mask)
        return torch.bmm(torch.softmax(scores, dim=-1), values.flatten(0, 1)).view(num_rows, -1)

    def _index(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device)

    def _additive(self, visible: np.ndarray) -> torch.Tensor:
        mask = np.where(visible, np.float32(0.0), np.float32(-np.inf))
        return torch.from_numpy(mask).to(self._device)


def _prefill(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    group: _PrefillGroup,
    params: AttentionParams,
) -> torch.Tensor:
    """q[R * Q, Hq, D], keys and values [R, Hkv, L, D] -> [R * Q, Hq * D]."""
    queries = q.view(keys.shape[0], -1, *q.shape[1:]).transpose(1, 2)
    mask = group.mask
    out = F.scaled_dot_product_attention(
        queries, keys, values, mask, is_causal=mask is None, scale=params.scale, enable_gqa=True
    )
    return out.transpose(1, 2).flatten(2).flatten(0, 1)


def _prefill_by_scores(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    group: _PrefillGroup,
    params: AttentionParams,
) -> torch.Tensor:
    """The same where scores change before the softmax: some queries at a time."""
    num_rows, num_kv_heads, key_len, head_size = keys.shape
    queries = q.view(num_rows, -1, num_kv_heads, q.shape[1] // num_kv_heads, head_size)
    queries = queries.permute(0, 2, 3, 1, 4) * params.scale  # [R, Hkv, G, Q, D]
    query_len = queries.shape[3]
    at_once = max(_MAX_SCORES // (num_rows * q.shape[1] * key_len), 1)
    outs = []
    for start in range(0, query_len, at_once):
        part = queries[:, :, :, start : start + at_once]
        scores = part @ keys[:, :, None].transpose(-1, -2)
        _adjust(scores.flatten(1, 2), group.newest, params)
        if group.mask is None:
            seen = torch.ones(part.shape[3], key_len, dtype=torch.bool, device=q.device)
            scores.masked_fill_(~seen.tril_(start), -torch.inf)
        else:
            scores += group.mask[:, :, None, start : start + at_once]
        outs.append(torch.softmax(scores, dim=-1) @ values[:, :, None])
    return torch.cat(outs, dim=3).permute(0, 3, 1, 2, 4).flatten(2).flatten(0, 1)


def _adjust(scores: torch.Tensor, newest: torch.Tensor, params: AttentionParams) -> None:
    """Cap scores[R, Hq, Q, L] and add biases by distance, in place.

    A softmax is the same when all of a query's scores are shifted, so distances are counted from
    the row's last key, newest[R, 1].
    """
    if params.soft_cap is not None:
        scores.div_(params.soft_cap).tanh_().mul_(params.soft_cap)
    if params.alibi_slopes is not None:
        distance = torch.arange(scores.shape[-1], device=scores.device) - newest
        scores.add_(params.alibi_slopes[:, None, None] * distance[:, None, None])
