"""LogprobTensors: entries of different lengths and their way to lists."""

from __future__ import annotations

import pytest
import torch

from octavo.kernels.reference import sampling as kernels
from octavo.sampling.logprob_tensors import LOGPROB_FLOOR, LogprobTensors
from octavo.sampling.logprobs import gather_logprobs
from octavo.sampling.row_filters import RowSubset

VOCAB = 50


def _all(rows: list[int]) -> RowSubset:
    """The logits of the test, as those of `rows`."""
    return RowSubset(rows, None, torch.tensor(rows))


def test_rows_ask_for_different_numbers() -> None:
    torch.manual_seed(1)
    logits, tokens = torch.randn(70, VOCAB), torch.randint(0, VOCAB, (70,))
    numbers = [row % 4 for row in range(70)]
    rows = [2 * row for row in range(70)]
    joined = LogprobTensors.join(gather_logprobs(kernels, logits, tokens, _all(rows), numbers))
    lists = joined.to_lists()
    assert {row: len(entry.token_ids) - 1 for row, entry in lists.items()} == dict(
        zip(rows, numbers, strict=True)
    )
    assert [entry.token_ids[0] for entry in lists.values()] == tokens.tolist()
    best = logits.log_softmax(-1).topk(3).indices
    for i, entry in enumerate(lists.values()):
        assert entry.token_ids[1:] == best[i, : numbers[i]].tolist()


@pytest.mark.parametrize("normalize", [True, False])
def test_masked_tokens_show_the_floor(normalize: bool) -> None:
    logits = torch.tensor([[0.0, -torch.inf, -1e6], [torch.nan, 1.0, 2.0]])
    parts = gather_logprobs(
        kernels, logits, torch.tensor([1, 0]), _all([0, 1]), [3, 3], normalize=normalize
    )
    lists = LogprobTensors.join(parts).to_lists()
    assert lists[0].token_ids == [1, 0, 2, 1]
    assert lists[0].logprobs == [LOGPROB_FLOOR, 0.0, LOGPROB_FLOOR, LOGPROB_FLOOR]
    assert lists[0].rank == 3
    assert lists[1].logprobs[0] == LOGPROB_FLOOR


def test_map_moves_every_tensor() -> None:
    part = gather_logprobs(
        kernels, torch.randn(2, VOCAB), torch.tensor([0, 1]), _all([4, 9]), [1, 2]
    )[0]
    moved = []
    copy = part.map(lambda tensor: (moved.append(tensor), tensor.clone())[1])
    assert len(moved) == 3
    assert copy.to_lists() == part.to_lists()
    assert list(copy.to_lists()) == [4, 9]
