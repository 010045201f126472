"""Every family's logits and greedy tokens equal transformers' in float32."""

import pytest
import torch

from support.paged_model import PagedModel
from support.tiny_models import FAMILIES, VOCAB, load_tiny, save_tiny

TOLERANCE = 1e-4
# Of the largest logit: what float32 leaves of logits beyond 20, in transformers as in ours.
RELATIVE = 5e-6


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request, tmp_path_factory):
    """(transformers' model, ours)."""
    folder = tmp_path_factory.mktemp(request.param)
    return save_tiny(request.param, folder), load_tiny(folder)


def prompt_of(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, VOCAB, (length,), generator=generator).tolist()


@torch.inference_mode()
def reference_logits(model, tokens: list[int]) -> torch.Tensor:
    return model(torch.tensor([tokens])).logits[0]


def assert_equal_logits(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.dtype == torch.float32
    assert ours.shape == theirs.shape
    tolerance = max(TOLERANCE, RELATIVE * theirs.abs().max().item())
    assert (ours - theirs).abs().max().item() <= tolerance


@pytest.mark.parametrize("length", [1, 2, 31, 130])
def test_prefill_at_once(pair, length):
    theirs, ours = pair
    tokens = prompt_of(length, seed=length)
    paged = PagedModel(ours, block_size=8, seed=length)
    (logits,) = paged.step([(paged.sequence(), tokens)])
    assert_equal_logits(logits, reference_logits(theirs, tokens))


@pytest.mark.parametrize("chunk", [7, 16, 50])
def test_prefill_in_chunks(pair, chunk):
    theirs, ours = pair
    tokens = prompt_of(75, seed=chunk)
    paged = PagedModel(ours, block_size=16, seed=chunk)
    sequence = paged.sequence()
    parts = [paged.step([(sequence, tokens[at : at + chunk])])[0] for at in range(0, 75, chunk)]
    assert_equal_logits(torch.cat(parts), reference_logits(theirs, tokens))


def test_mixed_batch(pair):
    """Decode rows, prompts and later chunks of other sequences in one step."""
    theirs, ours = pair
    paged = PagedModel(ours, block_size=4, seed=3)
    lengths = [40, 3, 61, 18, 90]
    prompts = [prompt_of(n, seed=n) for n in lengths]
    sequences = [paged.sequence() for _ in prompts]
    paged.step([(sequences[i], prompts[i][: lengths[i] - 1]) for i in (0, 1)])
    paged.step([(sequences[2], prompts[2][:30])])
    results = paged.step(
        [
            (sequences[0], prompts[0][-1:]),
            (sequences[1], prompts[1][-1:]),
            (sequences[2], prompts[2][30:]),
            (sequences[3], prompts[3]),
            (sequences[4], prompts[4]),
        ]
    )
    for prompt, logits in zip(prompts, results, strict=True):
        expected = reference_logits(theirs, prompt)[-logits.shape[0] :]
        assert_equal_logits(logits, expected)


def test_greedy_tokens(pair):
    """100 tokens of three prompts run together, prompts in chunks."""
    theirs, ours = pair
    prompts = [prompt_of(n, seed=n) for n in (5, 33, 64)]
    paged = PagedModel(ours, block_size=8, seed=9)
    outputs = paged.greedy(prompts, 100, chunk=16)
    for prompt, output in zip(prompts, outputs, strict=True):
        assert len(output) == 100
        # By induction: each token is the argmax of what transformers makes of the ones before.
        logits = reference_logits(theirs, prompt + output[:-1])
        assert output == logits[len(prompt) - 1 :].argmax(dim=-1).tolist()
