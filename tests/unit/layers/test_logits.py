import torch

from octavo.layers.embedding import ParallelLMHead
from octavo.layers.logits import VocabLogits
from support.layer_context import layer_context, load_all


def test_own_dtype_and_without_padding():
    context = layer_context(dtype=torch.bfloat16)
    head = ParallelLMHead(context, 70, 6)
    weight = torch.randn(70, 6)
    load_all(head, {"weight": [weight]})
    hidden = torch.randn(3, 6).bfloat16()
    logits = VocabLogits(context, 70)(head, hidden)
    assert logits.dtype == torch.bfloat16
    assert logits.shape == (3, 70)
    expected = hidden.float() @ weight.bfloat16().float().t()
    torch.testing.assert_close(logits.float(), expected, atol=3e-2, rtol=3e-2)


def test_parts_are_gathered():
    class Two:
        rank, size = 0, 2

        def all_gather(self, x):
            return torch.cat([x, x + 1], dim=-1)

    context = layer_context(group=Two())
    head = ParallelLMHead(context, 100, 6)  # 64 rows a rank
    load_all(head, {"weight": [torch.randn(100, 6)]})
    logits = VocabLogits(context, 100)(head, torch.randn(2, 6))
    assert logits.shape == (2, 100)
    assert torch.equal(logits[:, 64:], logits[:, :36] + 1)


def test_scale_and_soft_cap():
    context = layer_context()
    head = ParallelLMHead(context, 70, 6)
    load_all(head, {"weight": [torch.randn(70, 6)]})
    hidden = torch.randn(3, 6)
    plain = VocabLogits(context, 70)(head, hidden)
    capped = VocabLogits(context, 70, scale=0.5, soft_cap=2.0)(head, hidden)
    torch.testing.assert_close(capped, 2.0 * torch.tanh(0.5 * plain / 2.0))
