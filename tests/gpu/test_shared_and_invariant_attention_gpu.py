"""Shared-prefix and batch-invariant attention on a CUDA device."""

from __future__ import annotations

import itertools

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
cases = pytest.importorskip("support.kernel_cases", exc_type=ImportError)
from octavo.attention.backends.triton_invariant import TritonInvariant  # noqa: E402
from octavo.attention.interface import AttentionParams  # noqa: E402
from support.attention_steps import rows_of  # noqa: E402

DTYPES = [torch.bfloat16, torch.float16, torch.float32]
QWEN3_8B = (32, 8, 128)
QWEN3_06B = (16, 8, 128)


def make_params(heads, window=None, soft_cap=None, sinks=False):
    sink = torch.randn(heads[0]).cuda() if sinks else None
    return AttentionParams(heads[2] ** -0.5, *heads, window, soft_cap, sink)


def decodes(*lengths):
    return [(1, length) for length in lengths]


CROWD = decodes(*range(2049, 2089), *(37 * n + 1 for n in range(20)))
TWO = decodes(*range(1100, 1135), *range(601, 611), 3000, 1)
MANY = decodes(*range(1025, 1250))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "groups", "padding", "heads", "sinks"),
    [
        (CROWD, [(0, 40, 2048)], 0, QWEN3_8B, False),
        (CROWD, [(0, 40, 2048)], 4, QWEN3_06B, True),
        (TWO, [(0, 35, 1024), (35, 10, 592)], 1, QWEN3_8B, False),
        (TWO, [(0, 35, 1024), (35, 10, 592)], 0, (12, 2, 80), True),
        (TWO, [(0, 35, 1024)], 0, (8, 1, 256), False),
        (MANY, [(0, 225, 1024)], 31, QWEN3_8B, False),
        ([*TWO, (5, 80), (300, 700)], [(0, 35, 1024)], 3, QWEN3_8B, False),
    ],
)
def test_shared_prefixes(rows, groups, padding, heads, sinks, dtype):
    params = make_params(heads, sinks=sinks)
    cases.check_attention(rows, params, "cuda", dtype, padding=padding, groups=groups)


def test_one_graph_serves_steps_with_groups_and_without():
    params = make_params(QWEN3_8B)
    lengths = [*range(2100, 2140), *range(300, 324)]
    step = cases.make_step(
        [1] * 64, lengths, params, 16, dtype=torch.bfloat16, device="cuda", groups=[(0, 40, 2048)]
    )
    batch, shared = step.batch, step.batch.shared_prefixes
    backend = cases.TritonAttention(
        cases.make_setup(params, 16, dtype=torch.bfloat16, device="cuda")
    )
    told = shared.num_tokens.clone()
    shared.num_tokens.zero_()

    def layers():
        metadata = backend.build_metadata(batch)
        for _ in range(3):
            out = backend.forward(step.q, step.kv, metadata, params)
        return out

    layers()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layers()
    expected = cases.paged_attention(
        step.q, step.kv, batch.query_start_loc, batch.seq_lens, step.rows, params.scale
    )
    results = []
    for num_tokens in (told, told * 0, told // 2, told, told):
        shared.num_tokens.copy_(num_tokens)
        out.fill_(float("nan"))
        graph.replay()
        cases.assert_close(out, expected, torch.bfloat16)
        results.append(out.clone())
    # The order of the parts is that of the keys, whoever comes last.
    assert torch.equal(results[0], results[3])
    assert torch.equal(results[3], results[4])


def attend(step, params):
    setup = cases.make_setup(params, 16, dtype=step.q.dtype, device="cuda", batch_invariant=True)
    backend = TritonInvariant(setup)
    metadata = backend.build_metadata(step.batch)
    first, second = (backend.forward(step.q, step.kv, metadata, params) for _ in range(2))
    assert torch.equal(first, second)
    return first


KINDS = [
    (QWEN3_8B, None, None, False),
    (QWEN3_06B, None, 30.0, True),
    ((12, 2, 80), 700, None, False),
    ((8, 1, 256), None, None, False),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_alone_and_in_a_mix(kind, dtype):
    params = make_params(*kind)
    rows = [(1, 9000), (1, 600), (700, 2000), (1, 30), (5, 1030), (16, 3000), (64, 64)]
    step = cases.make_step(
        [q for q, _ in rows], [n for _, n in rows], params, 16, dtype=dtype, device="cuda"
    )
    mix = attend(step, params)
    expected = cases.paged_attention(
        step.q.double(), step.kv.double(), step.batch.query_start_loc, step.batch.seq_lens,
        step.rows, params.scale, params.sliding_window, params.soft_cap,
        None if params.sinks is None else params.sinks.double(),
    )  # fmt: skip
    cases.assert_close(mix, expected, dtype)
    for row, (query_len, seq_len) in enumerate(rows):
        alone, tokens = rows_of(step, [(row, query_len, seq_len)])
        assert torch.equal(attend(alone, params), mix[tokens])
    backwards, tokens = rows_of(step, [(row, *rows[row]) for row in reversed(range(len(rows)))])
    assert torch.equal(attend(backwards, params), mix[tokens])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_whole_in_chunks_and_token_by_token(kind, dtype):
    params = make_params(*kind)
    length = 2000
    step = cases.make_step([length], [length], params, 16, dtype=dtype, device="cuda")
    whole = attend(step, params)
    for cuts in ((0, 1, 300, 512, 1025, length), (0, 1024, 1999, length)):
        parts = []
        for begin, end in itertools.pairwise(cuts):
            chunk, _ = rows_of(step, [(0, end - begin, end)])
            parts.append(attend(chunk, params))
        assert torch.equal(torch.cat(parts), whole)
    for position in (0, 63, 511, 512, 1027, 1999):
        token, _ = rows_of(step, [(0, 1, position + 1)])
        assert torch.equal(attend(token, params), whole[position : position + 1])
