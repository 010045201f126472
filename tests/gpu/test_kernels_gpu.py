from __future__ import annotations

import dataclasses

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
cases = pytest.importorskip("support.kernel_cases", exc_type=ImportError)
from octavo.attention.interface import AttentionParams  # noqa: E402
from octavo.kernels.chunk_attention import cudnn_attention  # noqa: E402
from octavo.kernels.stream_gemm_table import measured_configs  # noqa: E402

GemmConfig, GemvConfig = cases.GemmConfig, cases.GemvConfig
DTYPES = [torch.bfloat16, torch.float16, torch.float32]
HALVES = [torch.bfloat16, torch.float16]
PDL = [False, True]
QWEN3_8B = (32, 8, 128)
QWEN3_06B = (16, 8, 128)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def make_params(
    heads: tuple[int, int, int],
    window: int | None = None,
    soft_cap: float | None = None,
    sinks: bool = False,
) -> AttentionParams:
    sink = torch.randn(heads[0]).cuda() if sinks else None
    return AttentionParams(heads[2] ** -0.5, *heads, window, soft_cap, sink)


@pytest.mark.parametrize("pdl", PDL)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "width"), [(1, 4096), (300, 1024), (7, 5000)])
def test_norms(num_rows, width, dtype, pdl):
    cases.check_norms(num_rows, width, "cuda", dtype, pdl)


@pytest.mark.parametrize("pdl", PDL)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "width"), [(1, 12288), (300, 3072), (7, 1001)])
def test_silu_and_mul(num_rows, width, dtype, pdl):
    cases.check_activation(num_rows, width, "cuda", dtype, pdl)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_tokens", "width"), [(1, 4096), (300, 1001)])
def test_embedding(num_tokens, width, dtype):
    cases.check_embedding(num_tokens, width, "cuda", dtype)


@pytest.mark.parametrize("pdl", PDL)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("heads", "rotary_dim", "is_neox", "has_norm", "num_tokens"),
    [
        (QWEN3_8B, 128, True, True, 3),
        (QWEN3_06B, 128, True, True, 700),
        ((6, 2, 80), 32, False, True, 13),
        ((5, 1, 64), 64, True, False, 300),
    ],
)
def test_qk_norm_rope_cache(heads, rotary_dim, is_neox, has_norm, num_tokens, dtype, pdl):
    cases.check_rotary(heads, rotary_dim, is_neox, has_norm, num_tokens, "cuda", dtype, pdl)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("pdl", PDL)
@pytest.mark.parametrize(
    ("shape", "config", "bias"),
    [
        ((1, 4096, 4096), GemvConfig(8, 4), False),
        ((1, 4100, 12288), GemvConfig(4, 8), True),
        ((1, 2048, 1024), GemvConfig(4, 2), False),
        ((3, 700, 200), GemmConfig(16, 32, 64, 1, 4, 3), True),
        ((20, 4096, 4096), GemmConfig(32, 64, 128, 4, 4, 4), False),
        ((64, 1000, 3072), GemmConfig(64, 128, 64, 8, 4, 4), True),
        ((5, 151936, 1024), GemmConfig(16, 64, 64, 1, 4, 4), False),
        ((200, 4096, 1024), GemmConfig(64, 64, 64, 2, 4, 3), False),
    ],
)
def test_stream_gemm(shape, config, bias, pdl, dtype):
    cases.check_gemm(shape, config, "cuda", dtype, bias=bias, pdl=pdl)


@pytest.mark.parametrize(("max_rows", "num_out", "inner", "config"), measured_configs())
def test_entries_of_the_table(max_rows, num_out, inner, config):
    shape = (max(max_rows - 1, 1), num_out, inner)
    cases.check_gemm(shape, config, "cuda", torch.bfloat16, pdl=True)


SKEWED = [(1, 9000)] + [(1, 37 * n + 1) for n in range(31)]
DRAFTS = [(4, 1400), (16, 170), (1, 16), (16, 16), (3, 3000)]
MIXED = [(1, 400), (300, 700), (2, 3000), (1000, 1000), (1, 1), (64, 2000), (130, 130)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "padding", "heads", "window", "soft_cap", "sinks"),
    [
        ([(1, 1)], 0, QWEN3_8B, None, None, False),
        ([(1, 20000)], 3, QWEN3_8B, None, None, False),
        (SKEWED, 0, QWEN3_8B, None, None, False),
        (SKEWED, 5, QWEN3_06B, 300, None, True),
        (SKEWED, 0, (9, 3, 64), None, 30.0, True),
        (DRAFTS, 0, QWEN3_8B, None, None, False),
        (DRAFTS, 0, (12, 2, 80), 100, None, True),
        (MIXED, 2, QWEN3_8B, None, None, False),
        (MIXED, 0, QWEN3_06B, None, None, False),
        (MIXED, 0, (12, 2, 80), 100, 20.0, True),
        (MIXED, 0, (8, 1, 256), None, None, False),
    ],
)
def test_attention(rows, padding, heads, window, soft_cap, sinks, dtype):
    params = make_params(heads, window, soft_cap, sinks)
    cases.check_attention(rows, params, "cuda", dtype, padding=padding)


def test_attention_replays_in_a_graph_with_other_lengths():
    params = make_params(QWEN3_8B)
    rows = [(1, 900), (1, 20), (1, 3000), (300, 800)]
    step = cases.make_step(
        [r[0] for r in rows], [r[1] for r in rows], params, 16, dtype=torch.float16, device="cuda"
    )
    batch = step.batch
    backend = cases.TritonAttention(
        cases.make_setup(params, 16, dtype=torch.float16, device="cuda")
    )

    def layers() -> torch.Tensor:
        metadata = backend.build_metadata(batch)
        for _ in range(3):
            out = backend.forward(step.q, step.kv, metadata, params)
        return out

    layers()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layers()
    for shrink in (0, 17, 1):
        batch.seq_lens.sub_(shrink)
        batch.seq_lens.clamp_(min=1)
        batch.seq_lens[3] = max(int(batch.seq_lens[3]), 300)
        out.fill_(float("nan"))
        graph.replay()
        expected = cases.paged_attention(
            step.q.double(),
            step.kv.double(),
            batch.query_start_loc,
            batch.seq_lens,
            step.rows,
            params.scale,
        )
        cases.assert_close(out, expected, torch.float16)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("rows", "row", "square"),
    [
        ([(4096, 4096)], 0, 4096),
        ([(5, 40), (1000, 1000), (3, 9)], 1, 1024),
        ([(7, 7), (4000, 8096)], 1, 4096),
        ([(1024, 3072), (1, 3)], 0, 1024),
    ],
)
def test_chunks_by_cudnn(rows, row, square, dtype):
    cases.check_chunk(rows, row, square, make_params(QWEN3_8B), "cuda", dtype, cudnn_attention)


def test_long_rows_go_to_cudnn():
    params = make_params(QWEN3_06B)
    rows = [(1, 900), (7800, 7800), (300, 800)]
    step = cases.make_step(
        [r[0] for r in rows], [r[1] for r in rows], params, 16, dtype=torch.bfloat16, device="cuda"
    )
    setup = cases.make_setup(params, 16, dtype=torch.bfloat16, device="cuda")
    setup = dataclasses.replace(setup, capability=(9, 0), max_num_tokens=9000, max_model_len=9000)
    backend = cases.TritonAttention(setup)
    assert not backend.build_metadata(step.batch).chunks
    backend.warm_up()
    metadata = backend.build_metadata(step.batch)
    assert [chunk.row for chunk in metadata.chunks] == [1]
    expected = cases.paged_attention(
        step.q,
        step.kv,
        step.batch.query_start_loc,
        step.batch.seq_lens,
        step.rows,
        params.scale,
    )
    for _ in range(2):
        out = backend.forward(step.q, step.kv, metadata, params)
        cases.assert_close(out, expected, torch.bfloat16)


@pytest.mark.parametrize("num_rows", [1, 300])
def test_inputs(num_rows):
    cases.check_inputs(num_rows, "cuda")
    cases.check_commit(num_rows, 5, "cuda")
