import pytest
import torch

from octavo.layers.embedding import (
    LearnedPositions,
    ParallelLMHead,
    VocabParallelEmbedding,
    vocab_part,
)
from support.layer_context import layer_context, load_all


@pytest.mark.parametrize(("vocab", "size"), [(64, 1), (203, 1), (203, 2), (130, 4), (1, 2)])
def test_parts_cover_the_vocabulary_in_order(vocab, size):
    parts = [vocab_part(vocab, rank, size) for rank in range(size)]
    assert len({padded for _, padded in parts}) == 1
    assert all(padded % 64 == 0 for _, padded in parts)
    covered = [i for part, _ in parts for i in range(part.start, part.start + part.size)]
    assert covered == list(range(vocab))
    # Concatenating the ranks' rows, padding included, keeps ids where they are.
    assert all(
        part.start == rank * parts[0][1] for rank, (part, _) in enumerate(parts) if part.size
    )


@pytest.mark.parametrize("size", [1, 2, 4])
def test_embedding(size):
    weight = torch.randn(203, 6)
    ids = torch.tensor([0, 63, 64, 127, 128, 202, 5, 5])
    total = 0
    for rank in range(size):
        layer = VocabParallelEmbedding(layer_context(rank, size), 203, 6)
        total = total + load_all(layer, {"weight": [weight]})(ids)
    assert torch.equal(total, weight[ids])


@pytest.mark.parametrize("size", [1, 2, 4])
def test_lm_head(size):
    weight, hidden = torch.randn(203, 6), torch.randn(3, 6)
    parts = []
    for rank in range(size):
        layer = ParallelLMHead(layer_context(rank, size), 203, 6)
        layer.weight.data.fill_(float("nan"))
        parts.append(load_all(layer, {"weight": [weight]})(hidden))
    logits = torch.cat(parts, dim=1)
    assert logits.shape[1] % 64 == 0
    torch.testing.assert_close(logits[:, :203], hidden @ weight.t(), atol=1e-5, rtol=1e-5)
    assert (logits[:, 203:] == 0).all()


def test_tied_head_uses_the_embedding():
    embedding = VocabParallelEmbedding(layer_context(), 203, 6)
    head = ParallelLMHead(layer_context(), 203, 6)
    head.tie(embedding)
    weight = torch.randn(203, 6)
    load_all(embedding, {"weight": [weight]})
    head.process_after_load()
    hidden = torch.randn(3, 6)
    expected = hidden @ weight.t()
    torch.testing.assert_close(head(hidden)[:, :203], expected, atol=1e-5, rtol=1e-5)
    # The embedding still has its table.
    assert torch.equal(embedding(torch.tensor([7])), weight[7:8])


def test_learned_positions_begin_at_their_offset():
    positions = LearnedPositions(layer_context(), 5, 4, offset=2)
    positions.weight.data.copy_(torch.arange(28.0).view(7, 4))
    assert torch.equal(positions(torch.tensor([0, 4])), positions.weight[[2, 6]])
