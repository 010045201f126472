"""Logprobs of prompts and samples, chunk by chunk, as lists."""

from __future__ import annotations

import pytest
import torch

from octavo.kernels.reference import sampling as kernels
from octavo.sampling import logprobs
from octavo.sampling.logprobs import prompt_logprobs

VOCAB = 50


def test_prompt_logprobs_match_log_softmax() -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(150, 8), torch.randn(VOCAB, 8)
    targets = torch.randint(0, VOCAB, (150,))
    sizes = []

    def compute_logits(rows: torch.Tensor) -> torch.Tensor:
        sizes.append(rows.shape[0])
        return rows @ weight.T

    lists = prompt_logprobs(kernels, hidden, targets, 4, compute_logits).to_lists()
    assert max(sizes) <= logprobs.CHUNK_ROWS
    assert list(lists) == list(range(150))
    expected = (hidden @ weight.T).log_softmax(-1)
    for row, entry in lists.items():
        best = expected[row].topk(4)
        assert entry.token_ids == [targets[row].item(), *best.indices.tolist()]
        assert entry.logprobs[0] == pytest.approx(expected[row, targets[row]].item(), abs=1e-5)
        assert entry.logprobs[1:] == pytest.approx(best.values.tolist(), abs=1e-5)
        assert entry.rank == (expected[row] > expected[row, targets[row]]).sum() + 1


@pytest.mark.parametrize(("asked", "length"), [(0, 1), (-1, VOCAB + 1), (VOCAB + 9, VOCAB + 1)])
def test_prompt_logprobs_of_any_number(asked: int, length: int) -> None:
    hidden = torch.randn(3, VOCAB)
    found = prompt_logprobs(kernels, hidden, torch.tensor([1, 2, 3]), asked, lambda x: x)
    assert [len(entry.token_ids) for entry in found.to_lists().values()] == [length] * 3


def test_no_prompt_positions() -> None:
    empty = torch.empty(0, 4)
    assert prompt_logprobs(kernels, empty, torch.empty(0).long(), 2, lambda x: x) is None
