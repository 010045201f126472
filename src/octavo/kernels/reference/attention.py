"""Paged attention, one row at a time in float32: the oracle of every attention backend."""

from __future__ import annotations

import itertools

import torch


def paged_attention(
    q: torch.Tensor,
    kv: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    block_table: torch.Tensor,
    scale: float,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
    sinks: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
) -> torch.Tensor:
    """Causal attention of each row's tokens over its sequence.

    q: [T, Hq, D]; kv: [num_blocks, 2, Hkv, block_size, D]; query_start_loc: [R + 1];
    seq_lens: [R], this step's tokens included; block_table: [R, max_blocks];
    sinks: [Hq] logits of a key whose value is zero; alibi_slopes: [Hq] added to the scores times
    the key's position less the query's. Returns [T, Hq * D] in q's dtype; rows
    without tokens are skipped.
    """
    num_tokens, num_heads, head_size = q.shape
    block_size = kv.shape[3]
    out = torch.zeros(num_tokens, num_heads, head_size, dtype=q.dtype, device=q.device)
    for row, (start, end) in enumerate(itertools.pairwise(query_start_loc.tolist())):
        if start == end:
            continue
        length = int(seq_lens[row])
        blocks = block_table[row, : -(-length // block_size)].long()
        # [n, 2, Hkv, bs, D] -> [2, Hkv, n * bs, D]
        pages = kv[blocks].permute(1, 2, 0, 3, 4).flatten(2, 3)[:, :, :length].float()
        keys, values = pages.repeat_interleave(num_heads // pages.shape[1], dim=1)
        scores = q[start:end].float().transpose(0, 1) @ keys.transpose(1, 2) * scale
        if soft_cap is not None:
            scores = soft_cap * torch.tanh(scores / soft_cap)
        query_at = torch.arange(length - (end - start), length, device=q.device)[:, None]
        key_at = torch.arange(length, device=q.device)[None, :]
        if alibi_slopes is not None:
            scores += alibi_slopes.float()[:, None, None] * (key_at - query_at)
        hidden = key_at > query_at
        if sliding_window is not None:
            hidden |= key_at <= query_at - sliding_window
        scores = scores.masked_fill(hidden, float("-inf"))
        if sinks is not None:
            sink = sinks.float()[:, None, None].expand(-1, end - start, 1)
            scores = torch.cat([scores, sink], dim=-1)
        probabilities = torch.softmax(scores, dim=-1)[..., :length]
        out[start:end] = (probabilities @ values).transpose(0, 1).to(q.dtype)
    return out.flatten(1)
