from __future__ import annotations

import pytest
import torch

from octavo.attention.interface import AttentionParams
from support.interpreter import require_interpreter

require_interpreter()
cases = pytest.importorskip("support.kernel_cases", exc_type=ImportError)
decode_map = pytest.importorskip("octavo.kernels.decode_map", exc_type=ImportError)

DECODE = [(1, 5), (1, 200), (1, 33), (1, 64)]
DRAFTS = [(4, 140), (16, 170), (1, 16), (16, 16)]
MIXED = [(1, 40), (30, 70), (2, 300), (100, 100), (1, 1)]


def make_params(
    heads: tuple[int, int, int],
    window: int | None = None,
    soft_cap: float | None = None,
    sinks: bool = False,
) -> AttentionParams:
    generator = torch.Generator().manual_seed(1)
    sink = torch.randn(heads[0], generator=generator) if sinks else None
    return AttentionParams(heads[2] ** -0.5, *heads, window, soft_cap, sink)


@pytest.mark.parametrize(
    ("rows", "padding", "params"),
    [
        (DECODE, 0, make_params((8, 2, 32))),
        (DECODE, 3, make_params((6, 2, 24), window=20)),
        ([(1, 900)], 2, make_params((4, 2, 32))),
        ([(1, 20), (1, 30)], 0, make_params((32, 1, 16))),
        (DRAFTS, 1, make_params((16, 4, 32), sinks=True)),
        (DRAFTS, 0, make_params((6, 2, 24), window=17, soft_cap=5.0)),
        (MIXED, 3, make_params((8, 2, 32))),
        (MIXED, 0, make_params((6, 2, 24), window=50)),
        (MIXED, 0, make_params((4, 1, 64), window=33, soft_cap=5.0, sinks=True)),
        (MIXED, 1, make_params((4, 4, 32), soft_cap=5.0, sinks=True)),
    ],
)
def test_matches_reference(rows, padding, params):
    cases.check_attention(rows, params, "cpu", torch.float32, padding=padding)


@pytest.mark.parametrize("rows", [DECODE, MIXED])
def test_matches_reference_in_float16(rows):
    params = make_params((8, 2, 32), window=60, sinks=True)
    cases.check_attention(rows, params, "cpu", torch.float16)


@pytest.mark.parametrize("block_size", [32, 128])
def test_blocks_as_long_as_a_tile_and_longer(block_size):
    rows = [(1, 140), (40, 150), (1, 3)]
    cases.check_attention(
        rows, make_params((4, 2, 16)), "cpu", torch.float32, block_size=block_size
    )


def test_blocks_that_fill_the_memory_of_a_program_are_refused():
    def reasons(head_size, block_size):
        setup = cases.make_setup(make_params((4, 2, head_size)), block_size, dtype=torch.bfloat16)
        return [r for r in cases.TritonAttention.unsupported(setup) if "blocks of" in r]

    assert not reasons(128, 128)
    assert not reasons(256, 64)
    assert reasons(256, 128) == [
        "blocks of 128 tokens with heads of 256 torch.bfloat16 are more than a multiprocessor's "
        "memory holds"
    ]


@pytest.mark.parametrize(
    ("num_rows", "group", "tile"),
    [(1, 4, 32), (8, 8, 32), (32, 4, 64), (128, 4, 64), (256, 4, 32), (256, 2, 64), (1, 2, 64)],
)
def test_tiles_of_keys_by_load(num_rows, group, tile):
    """As measured; see benchmarks/kernels.py."""
    assert decode_map.decode_config(128, 2, group, num_rows=num_rows, group=group).tile == tile


def test_many_rows_share_programs():
    random = torch.Generator().manual_seed(0)
    rows = [(1, int(n)) for n in torch.randint(1, 150, (12,), generator=random)]
    cases.check_attention(rows, make_params((4, 2, 16)), "cpu", torch.float32)


def test_layers_of_different_windows_share_a_step():
    params = make_params((8, 2, 32))
    windowed = make_params((8, 2, 32), window=20)
    step = cases.make_step([1, 40], [90, 120], params, 16)
    backend = cases.TritonAttention(cases.make_setup(params, 16))
    metadata = backend.build_metadata(step.batch)
    for layer in (params, windowed, params):
        out = backend.forward(step.q, step.kv, metadata, layer)
        expected = cases.paged_attention(
            step.q,
            step.kv,
            step.batch.query_start_loc,
            step.batch.seq_lens,
            step.rows,
            layer.scale,
            layer.sliding_window,
        )
        cases.assert_close(out, expected, torch.float32)
    assert sorted(metadata.decode_maps) == [0, 20]


def test_tokens_behind_the_last_row_are_zero():
    params = make_params((4, 2, 16))
    step = cases.make_step([1, 1], [9, 30], params, 16)
    backend = cases.TritonAttention(cases.make_setup(params, 16))
    metadata = backend.build_metadata(step.batch)
    q = torch.cat([step.q, torch.full((3, 4, 16), float("nan"))])
    out = backend.forward(q, step.kv, metadata, params)
    assert not out[2:].any()
    assert torch.isfinite(out).all()


@pytest.mark.parametrize(
    ("rows", "row", "square"),
    [
        ([(64, 64)], 0, 64),
        ([(5, 40), (300, 300), (3, 9)], 1, 320),
        ([(7, 7), (200, 790)], 1, 200),
        ([(100, 1124), (1, 3)], 0, 128),
    ],
)
def test_chunks_by_a_library(rows, row, square):
    """With and without history before the square, and rounding up of the square."""
    params = make_params((4, 2, 16))
    cases.check_chunk(rows, row, square, params, "cpu", torch.float32, cases.exact_attention)


@pytest.mark.parametrize(
    ("query_len", "seq_len", "square"),
    [
        (8192, 8192, 8192),
        (7680, 7680, 8192),
        (8192, 16384, 8192),
        (12000, 12000, 12288),
        (7679, 7679, None),  # too short
        (8300, 8300, None),  # too much to round up
        (8192, 16385, None),  # history of no shape used
    ],
)
def test_chunk_shapes(query_len, seq_len, square):
    chunk = cases.chunk_of(3, 17, query_len, seq_len)
    if square is None:
        assert chunk is None
    else:
        assert chunk == cases.Chunk(3, 17, query_len, seq_len - query_len, square)


def test_shapes_warmed_up_are_those_of_full_chunks():
    shapes = cases.chunk_shapes(16384, 40960)
    assert shapes == [
        (16384, 0),
        (16384, 16384),
        (12288, 0),
        (12288, 16384),
        (8192, 0),
        (8192, 16384),
        (8192, 32768),
    ]
    assert cases.chunk_shapes(8000, 40960) == []
    assert cases.chunk_shapes(2048, 40960) == []
    for square, history in shapes:
        assert cases.chunk_of(0, 0, square, square + history) is not None


def test_warm_up_asks_for_the_shapes_of_a_chunk():
    asked = []

    def attention(q, k, v, is_causal, scale):
        asked.append([(tuple(x.shape), x.stride()) for x in (q, k, v)] + [is_causal])
        return cases.exact_attention(q, k, v, is_causal, scale)

    params = make_params((4, 2, 16))
    cases.warm_up(64, 128, (4, 2, 16), torch.float32, torch.device("cpu"), attention)
    warmed, asked = asked, []
    cases.check_chunk([(64, 192)], 0, 64, params, "cpu", torch.float32, attention)
    assert asked == warmed
