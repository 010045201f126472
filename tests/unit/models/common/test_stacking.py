"""A decoder's layers as one call: the bits of its layers one by one, and when there is none."""

from dataclasses import replace

import pytest
import torch

from octavo.checkpoints.locate import find_model
from octavo.kernels.cpu.kernels import cpu_kernels
from octavo.kernels.cpu.library import native_library
from octavo.model_loader.loader import load_model
from octavo.models.common.stacking import StackedLayers
from support.paged_model import PagedModel
from support.tiny_models import VOCAB, model_context, save_tiny

pytestmark = pytest.mark.skipif(native_library() is None, reason="needs the C kernels")

STACKED = [
    "llama",
    "llama-biases",
    "mistral-window",
    "qwen2-window",
    "qwen3",
    "phi4-mini",
    "smollm3",
]
NOT_STACKED = ["gemma2", "olmo2", "gpt2", "granite", "cohere"]


@pytest.fixture(autouse=True)
def _two_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def load(tmp_path):
    def load(family):
        save_tiny(family, tmp_path)
        files = find_model(str(tmp_path))
        return load_model(replace(model_context(files), kernels=cpu_kernels()), files)

    return load


def run(model, block_size=16):
    """Logits of prompts, a chunk beside decoding rows, drafts, and single rows."""
    paged = PagedModel(model, block_size=block_size)
    random = torch.Generator().manual_seed(3)

    def tokens(count):
        return torch.randint(VOCAB, (count,), generator=random).tolist()

    rows = [paged.sequence() for _ in range(12)]
    results = paged.step([(row, tokens(5 + 7 * i)) for i, row in enumerate(rows[:4])])
    results += paged.step([(row, tokens(1)) for row in rows[:3]] + [(rows[4], tokens(40))])
    results += paged.step([(rows[4], tokens(3)), (rows[5], tokens(50)), (rows[0], tokens(1))])
    results += paged.step([(row, tokens(1)) for row in rows])
    results += paged.step([(rows[5], tokens(1))])
    return torch.cat(results)


@pytest.mark.parametrize("family", STACKED)
def test_bits_are_those_of_the_layers_one_by_one(load, family):
    model = load(family)
    assert isinstance(model.model._stack, StackedLayers)
    together = run(model)
    model.model._stack = None
    assert torch.equal(run(model), together)


@pytest.mark.parametrize("family", ["llama-biases", "mistral-window", "qwen3"])
@pytest.mark.parametrize("read", [[], [0], [44], [7, 8, 44], [6, 7, 20], list(range(45))])
def test_tokens_that_are_read_have_the_same_bits(load, family, read):
    model = load(family)

    def logits(read):
        paged = PagedModel(model)
        a, b, c = (paged.sequence() for _ in range(3))
        paged.step([(a, [1, 2, 3]), (b, list(range(3, 14)))], None if read is None else [])
        ids = torch.arange(45).tolist()
        first = torch.cat(paged.step([(a, ids[:7]), (b, ids[7:8]), (c, ids[8:])], read))
        # What was not read has left its keys and values all the same.
        return first, torch.cat(paged.step([(a, [5]), (b, [6]), (c, [7])]))

    (some, after), (every, expected) = logits(read), logits(None)
    assert torch.equal(some[read], every[read])
    assert torch.equal(after, expected)


def test_another_block_size(load):
    model = load("qwen3")
    assert torch.equal(run(model, block_size=4), run(model, block_size=32))


@pytest.mark.parametrize("family", NOT_STACKED)
def test_other_layers_are_run_one_by_one(load, family):
    assert load(family).model._stack is None


def test_steps_of_another_backend_are_run_layer_by_layer(load, monkeypatch):
    model = load("llama")
    expected = run(model)
    monkeypatch.setattr(model.model._stack._stack, "reads", lambda rows: False)
    assert torch.equal(run(model), expected)
