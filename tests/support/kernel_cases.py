"""Random calls of the Triton kernels beside their references, for the interpreter and for GPUs.

Every check poisons what the kernel is to write, so that an element it leaves out is found.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from octavo.attention.backends.triton import TritonAttention
from octavo.attention.interface import AttentionParams, SharedPrefixRows
from octavo.kernels import activation, embedding, inputs, norm, rotary_cache
from octavo.kernels.chunk_attention import (
    Attention,
    Chunk,
    chunk_attention,
    chunk_of,  # noqa: F401
    chunk_shapes,  # noqa: F401
    warm_up,  # noqa: F401
)
from octavo.kernels.invariant_gemm import InvariantConfig, invariant_gemm
from octavo.kernels.reference import elementwise
from octavo.kernels.reference import inputs as reference_inputs
from octavo.kernels.reference.attention import paged_attention
from octavo.kernels.shared_map import SharedTiles
from octavo.kernels.stream_gemm import MAX_TILES, GemmConfig, GemvConfig, stream_gemm
from support.attention_steps import make_setup, make_step

NAN = float("nan")
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    actual, expected = actual.double(), expected.double()
    return float((actual - expected).norm() / expected.norm().clamp_min(1e-30))


def assert_close(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    """Both finite and near each other by ||difference|| / ||expected||."""
    assert actual.shape == expected.shape
    assert torch.isfinite(actual).all()
    assert relative_error(actual, expected) < TOLERANCE[dtype]


def randn(*shape: int, device: str, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape).to(dtype).to(device)


def check_norms(num_rows: int, width: int, device: str, dtype: torch.dtype, pdl: bool) -> None:
    wide = randn(num_rows, width + 8, device=device, dtype=dtype)
    x, weight = wide[:, :width], randn(width, device=device, dtype=dtype)
    out = torch.full((num_rows, width), NAN, dtype=dtype, device=device)
    norm.rms_norm(x, weight, 1e-6, out=out, pdl=pdl)
    expected = F.rms_norm(x.double(), (width,), weight.double(), 1e-6)
    assert_close(out, expected, dtype)

    residual = randn(num_rows, width, device=device, dtype=dtype)
    total = residual + x
    out.fill_(NAN)
    _, summed = norm.fused_add_rms_norm(x, residual, weight, 1e-6, out=out, pdl=pdl)
    assert summed.data_ptr() == residual.data_ptr()
    assert torch.equal(summed, total)
    assert_close(out, F.rms_norm(total.double(), (width,), weight.double(), 1e-6), dtype)


def check_activation(num_rows: int, width: int, device: str, dtype: torch.dtype, pdl: bool) -> None:
    x = randn(num_rows, 2 * width, device=device, dtype=dtype)
    out = torch.full((num_rows, width), NAN, dtype=dtype, device=device)
    activation.silu_and_mul(x, out=out, pdl=pdl)
    gate, up = x.double().chunk(2, dim=-1)
    assert_close(out, F.silu(gate) * up, dtype)


def check_embedding(num_tokens: int, width: int, device: str, dtype: torch.dtype) -> None:
    weight = randn(37, width, device=device, dtype=dtype)
    ids = torch.randint(0, 37, (num_tokens,), dtype=torch.int32).to(device)
    out = torch.full((num_tokens, width), NAN, dtype=dtype, device=device)
    assert torch.equal(embedding.embedding(ids, weight, out=out), weight[ids.long()])


def check_rotary(
    heads: tuple[int, int, int],
    rotary_dim: int,
    is_neox: bool,
    has_norm: bool,
    num_tokens: int,
    device: str,
    dtype: torch.dtype,
    pdl: bool,
) -> None:
    """The reference in the same dtype rounds at the same places, so it is compared directly."""
    num_heads, num_kv_heads, head_size = heads
    qkv = randn(num_tokens, (num_heads + 2 * num_kv_heads) * head_size, device=device, dtype=dtype)
    weights = [randn(head_size, device=device, dtype=dtype) if has_norm else None for _ in "qk"]
    angles = torch.rand(200, rotary_dim // 2) * 6.28
    cos_sin = torch.cat([angles.cos(), angles.sin()], dim=1).to(device)
    positions = torch.randint(0, 200, (num_tokens,)).to(device)
    num_blocks = num_tokens // 16 + 3
    slots = torch.randperm(num_blocks * 16)[:num_tokens]
    slots[num_tokens // 2] = -1
    slots = slots.to(device)
    cache = torch.full((num_blocks, 3, 2, num_kv_heads, 16, head_size), 7.0, dtype=dtype)
    pages, expected_pages = cache.to(device), cache.to(device).clone()
    rest = (1e-6, cos_sin, positions, slots)
    q = rotary_cache.qk_norm_rope_cache(
        qkv.clone(), *weights, *rest, pages[:, 1], rotary_dim, is_neox, pdl=pdl
    )
    expected = elementwise.qk_norm_rope_cache(
        qkv.clone(), *weights, *rest, expected_pages[:, 1], rotary_dim, is_neox
    )
    assert_close(q, expected, dtype)
    assert_close(pages, expected_pages, dtype)
    # Only the slots named were written.
    assert torch.equal(pages == 7.0, expected_pages == 7.0)


def check_gemm(
    shape: tuple[int, int, int],
    config: GemvConfig | GemmConfig,
    device: str,
    dtype: torch.dtype,
    *,
    bias: bool = False,
    pdl: bool = False,
) -> None:
    num_rows, num_out, inner = shape
    x = randn(num_rows, inner, device=device, dtype=dtype)
    weight = randn(num_out, inner, device=device, dtype=dtype) / inner**0.5
    offset = randn(num_out, device=device, dtype=dtype) if bias else None
    expected = F.linear(x.double(), weight.double(), None if offset is None else offset.double())
    arrivals = torch.zeros(MAX_TILES, dtype=torch.int32, device=device)
    results = []
    for _ in range(2):
        out = torch.full(expected.shape, NAN, dtype=dtype, device=device)
        stream_gemm(x, weight, offset, config, arrivals, out=out, pdl=pdl)
        assert_close(out, expected, dtype)
        results.append(out)
    assert torch.equal(*results)
    assert not arrivals.any()


def check_invariant_gemm(
    shape: tuple[int, int, int],
    config: InvariantConfig,
    device: str,
    dtype: torch.dtype,
    *,
    bias: bool = False,
    pdl: bool = False,
) -> None:
    num_rows, num_out, inner = shape
    wide = randn(num_rows, inner + 8, device=device, dtype=dtype)
    x = wide[:, :inner]
    weight = randn(num_out, inner, device=device, dtype=dtype) / inner**0.5
    offset = randn(num_out, device=device, dtype=dtype) if bias else None
    expected = F.linear(x.double(), weight.double(), None if offset is None else offset.double())
    out = torch.full(expected.shape, NAN, dtype=dtype, device=device)
    invariant_gemm(x, weight, offset, config, out=out, pdl=pdl)
    assert_close(out, expected, dtype)


def check_attention(
    rows: list[tuple[int, int]],
    params: AttentionParams,
    device: str,
    dtype: torch.dtype,
    *,
    padding: int = 0,
    seed: int = 0,
    block_size: int = 16,
    groups: Sequence[tuple[int, int, int]] = (),
    layers: int = 3,
) -> None:
    """rows: (query tokens, sequence length); `padding` empty rows behind them; see make_step."""
    query_lens, seq_lens = [row[0] for row in rows], [row[1] for row in rows]
    step = make_step(
        query_lens,
        seq_lens,
        params,
        block_size,
        dtype=dtype,
        device=device,
        seed=seed,
        groups=groups,
    )
    batch = step.batch
    exact = AttentionParams(
        **{**vars(params), "sinks": None if params.sinks is None else params.sinks.double()}
    )
    expected = paged_attention(
        step.q.double(),
        step.kv.double(),
        batch.query_start_loc,
        batch.seq_lens,
        step.rows,
        exact.scale,
        exact.sliding_window,
        exact.soft_cap,
        exact.sinks,
    )
    if padding:
        last = batch.query_start_loc[-1:].expand(padding)
        zeros = batch.seq_lens.new_zeros(padding)
        padded = {
            "query_start_loc": torch.cat([batch.query_start_loc, last]),
            "seq_lens": torch.cat([batch.seq_lens, zeros]),
            "slots": torch.cat([batch.slots, batch.slots[:1].expand(padding)]),
        }
        if batch.shared_prefixes is not None:
            shared = batch.shared_prefixes
            padded["shared_prefixes"] = SharedPrefixRows(
                torch.cat([shared.first_rows, zeros]), torch.cat([shared.num_tokens, zeros])
            )
        batch = type(batch)(**{**vars(batch), **padded})
    backend = TritonAttention(make_setup(params, block_size, dtype=dtype, device=device))
    metadata = backend.build_metadata(batch)
    for _ in range(layers):  # layers of one step share the maps, whose counters return to zero
        out = backend.forward(step.q, step.kv, metadata, params)
        assert_close(out, expected, dtype)
    for decode_map in metadata.decode_maps.values():
        assert not decode_map.arrivals.any()
        if decode_map.shared is not None:
            check_at_rest(decode_map.shared)
    if metadata.prefill_map is not None:
        assert int(metadata.prefill_map.counters[1]) == 0


def check_at_rest(shared: SharedTiles) -> None:
    """No part of any tile counts as done between two layers."""
    num_tiles, num_heads = int(shared.ints[0]), shared.partials.shape[1]
    arrivals = shared.ints[16 + 3 * shared.capacity :][: num_tiles * num_heads]
    assert not arrivals.any()


def exact_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """What cuDNN computes for chunk_attention, in float64."""
    group = q.shape[1] // k.shape[1]
    keys, values = (x.double().repeat_interleave(group, dim=1) for x in (k, v))
    scores = q.double() @ keys.transpose(2, 3) * scale
    if is_causal:
        rows, columns = scores.shape[2:]
        hidden = torch.ones(rows, columns, dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    out = scores.softmax(dim=-1) @ values
    return out.to(q.dtype), scores.logsumexp(dim=-1).float()


def check_chunk(
    rows: list[tuple[int, int]],
    row: int,
    square: int,
    params: AttentionParams,
    device: str,
    dtype: torch.dtype,
    attention: Attention,
) -> None:
    """chunk_attention of one row of a step, and that it leaves the other rows alone."""
    step = make_step(
        [q for q, _ in rows], [n for _, n in rows], params, 16, dtype=dtype, device=device
    )
    starts = step.batch.query_start_loc_cpu
    query_len, seq_len = rows[row]
    chunk = Chunk(row, int(starts[row]), query_len, seq_len - query_len, square)
    expected = paged_attention(
        step.q.double(),
        step.kv.double(),
        step.batch.query_start_loc,
        step.batch.seq_lens,
        step.rows,
        params.scale,
    ).view(step.q.shape)
    out = torch.full(step.q.shape, NAN, dtype=dtype, device=device)
    batch = step.batch
    chunk_attention(
        step.q,
        step.kv,
        out,
        batch.slots,
        batch.block_table,
        chunk,
        scale=params.scale,
        attention=attention,
    )
    assert_close(out[starts[row] : starts[row + 1]], expected[starts[row] : starts[row + 1]], dtype)
    assert out[: starts[row]].isnan().all()
    assert out[starts[row + 1] :].isnan().all()


def check_inputs(num_rows: int, device: str) -> None:
    num_slots, max_blocks = num_rows + 3, 9
    data = torch.zeros(1000, dtype=torch.int32, device=device)
    indices = torch.randperm(1000)[:300].int().to(device)
    values = torch.randint(1, 1 << 30, (300,)).int().to(device)
    expected = data.clone()
    reference_inputs.staged_write(expected, indices, values)
    inputs.staged_write(data, indices, values)
    assert torch.equal(data, expected)

    lengths = torch.randint(1, 5, (num_rows,))
    start_loc = torch.cat([torch.zeros(1), lengths.cumsum(0)]).int().to(device)
    token_row = torch.arange(num_rows).repeat_interleave(lengths).int().to(device)
    slots = torch.randperm(num_slots)[:num_rows].to(device)
    last_token = torch.randint(0, 1000, (num_slots + 1,)).int().to(device)
    num_computed = torch.randint(0, 16 * max_blocks - 5, (num_slots + 1,)).int().to(device)
    table = torch.randint(0, 1 << 20, (num_slots + 1, max_blocks)).int().to(device)
    host_ids = torch.randint(-1, 3, (token_row.shape[0],)).int().to(device)
    arguments = (host_ids, token_row, start_loc, slots, last_token, num_computed)
    actual = inputs.token_inputs(*arguments)
    for got, want in zip(actual, reference_inputs.token_inputs(*arguments), strict=True):
        assert got.dtype == want.dtype
        assert torch.equal(got, want)
    places = (actual[1], token_row, slots, table, 16)
    assert torch.equal(inputs.slot_mapping(*places), reference_inputs.slot_mapping(*places))


def check_commit(num_rows: int, padding: int, device: str) -> None:
    """Rows of 1 to 4 tokens, some followed by sampling, and padding rows of the last slot."""
    num_slots = num_rows + 3
    slots = torch.randperm(num_slots)[:num_rows]
    slots = torch.cat([slots, torch.full((padding,), num_slots)]).to(device)
    lengths = torch.cat([torch.randint(1, 5, (num_rows,)), torch.zeros(padding, dtype=torch.int64)])
    start_loc = torch.cat([torch.zeros(1), lengths.cumsum(0)]).int().to(device)
    rows = torch.randperm(num_rows)[: num_rows // 2 + 1].to(device)
    token_ids = torch.randint(0, 1000, (rows.shape[0],)).to(device)
    last_token = torch.randint(0, 1000, (num_slots + 1,)).int().to(device)
    num_computed = torch.randint(0, 100, (num_slots + 1,)).int().to(device)
    state, expected = (last_token, num_computed), (last_token.clone(), num_computed.clone())
    reference_inputs.commit(slots, start_loc, rows, token_ids, *expected)
    inputs.commit(slots, start_loc, rows, token_ids, *state)
    for got, want in zip(state, expected, strict=True):
        assert torch.equal(got, want)
