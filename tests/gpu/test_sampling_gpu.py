"""Sampling on a CUDA device: thousands of parameter sets against the reference, in graphs too."""

from __future__ import annotations

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
cases = pytest.importorskip("support.draw_cases", exc_type=ImportError)

DTYPES = [torch.bfloat16, torch.float16, torch.float32]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "num_tokens"), [(1, 151936), (64, 32001)])
def test_greedy(num_rows, num_tokens, dtype):
    cases.check_greedy(num_rows, num_tokens, dtype, "cuda")


@pytest.mark.parametrize("edits", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("num_rows", "num_tokens"), [(2000, 40), (1000, 5003), (64, 32001), (48, 151936)]
)
def test_draws_are_the_reference_s(num_rows, num_tokens, dtype, edits):
    """The device's exponentials and logarithms may differ in their last bit from a CPU's."""
    cases.check_draw(
        num_rows, num_tokens, dtype, "cuda", edits=edits, tolerated=1 + num_rows // 500
    )


def test_slots_without_a_request():
    cases.check_padding(151936, "cuda")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_alone_and_among_others(dtype):
    cases.check_rows_alone(300, 32001, dtype, "cuda")


def test_penalties():
    cases.check_penalties(40, 32001, "cuda")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "num_tokens"), [(64, 700), (64, 32001), (24, 151936)])
def test_top_logprobs(num_rows, num_tokens, dtype):
    cases.check_top_logprobs(num_rows, num_tokens, dtype, "cuda")


def test_a_graph_follows_slots_parameters_and_counts():
    """Captured for the slot of padding, replayed for others, whose tables have changed since."""
    num_rows, num_tokens, num_slots = 16, 32001, 40
    tables = cases.on(cases.random_tables(num_slots, num_tokens), "cuda")
    tables.features[num_slots - 1] = -1
    logits = torch.randn(num_rows, num_tokens, device="cuda") * 3
    slots = torch.full((num_rows,), num_slots - 1, device="cuda")
    positions = torch.zeros(num_rows, dtype=torch.int32, device="cuda")

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        token_ids, bad = cases.draw(logits, slots, positions, tables, edits=True)
        cases.penalty_kernels.count_outputs(slots, token_ids, tables)
        return token_ids, bad

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        token_ids, bad = step()
    for replay in range(4):
        slots.copy_(torch.randperm(num_slots)[:num_rows])
        positions.fill_(5 + replay)
        logits.normal_().mul_(3)
        tables.params.copy_(cases.random_tables(num_slots, 8).params)
        tables.params[:, cases.Word.TOP_K].clamp_(min=2)
        seen = tables.seen.clone()
        expected, expected_bad = cases.draw(logits, slots, positions, tables, edits=True)
        graph.replay()
        assert torch.equal(token_ids, expected)
        assert torch.equal(bad, expected_bad)
        rows = tables.features[slots, cases.Feature.PENALTIES]
        assert int((tables.seen - seen).sum()) == int((rows >= 0).sum())
