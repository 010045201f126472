"""GenerationHead: tokens made in one piece are those made stage by stage, in a whole engine."""

from __future__ import annotations

import pytest
import torch

from octavo import LLM, SamplingParams
from octavo.kernels.reference import sampling
from octavo.sampling.interface import Variant
from octavo.worker.heads.generation import GenerationHead
from support.tiny_models import save_tiny

VOCAB = 203
GREEDY = {"temperature": 0.0}
RANDOM = [{}, {"top_p": 0.9}, {"top_k": 5}, {"top_k": 20, "top_p": 0.8, "min_p": 0.02}]
EDITED = [
    {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": 0.2},
    {"temperature": 0.0, "presence_penalty": 1.5},
    {"logit_bias": {4: 3.0, 9: -100.0}, "top_p": 0.9},
    {"allowed_token_ids": list(range(20, 60))},
    {"min_tokens": 6, "stop_token_ids": list(range(50)), "ignore_eos": False},
]
HOST = [{"logprobs": 2}, {"temperature": 0.0, "logprobs": 0}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("llama")
    save_tiny("llama", path)
    return path


def generate(folder, kinds, monkeypatch, *, draws):
    """(tokens and finish reason of a request of each kind, in one batch; variants met)."""
    monkeypatch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "0")
    monkeypatch.setenv("OCTAVO_CPU_THREADS", "1")
    monkeypatch.setattr(sampling, "PREFERS_DRAW", draws)
    met = set()
    call = GenerationHead.__call__

    def noted(self, hidden, batch, variant, masks=None):
        met.add(variant)
        return call(self, hidden, batch, variant, masks)

    monkeypatch.setattr(GenerationHead, "__call__", noted)
    threads = torch.get_num_threads()
    llm = LLM(
        str(folder),
        skip_tokenizer_init=True,
        max_model_len=128,
        max_num_seqs=6,
        max_num_batched_tokens=32,
    )
    try:
        prompts = [[5 + (3 * i + j) % 150 for j in range(3 + 5 * i)] for i in range(len(kinds))]
        params = [
            SamplingParams(**{"seed": 7 + i, "max_tokens": 10 + i % 3, "ignore_eos": True, **kind})
            for i, kind in enumerate(kinds)
        ]
        outputs = llm.generate(prompts, params, use_tqdm=False)
    finally:
        llm.shutdown()
        torch.set_num_threads(threads)
    return [(out.outputs[0].token_ids, out.outputs[0].finish_reason) for out in outputs], met


@pytest.mark.parametrize(
    ("kinds", "variant"),
    [
        ([GREEDY] * 3, Variant.GREEDY),
        ([GREEDY, *RANDOM], Variant.RANDOM),
        ([GREEDY, *RANDOM, *EDITED], Variant.EDITED),
        ([*HOST, *RANDOM, *EDITED], Variant.HOST),
    ],
    ids=["greedy", "random", "edited", "host"],
)
def test_tokens_of_every_variant(folder, monkeypatch, kinds, variant):
    staged, _ = generate(folder, kinds, monkeypatch, draws=False)
    drawn, met = generate(folder, kinds, monkeypatch, draws=True)
    assert drawn == staged
    assert variant in met


def test_states_that_no_sampling_reads_need_not_be_computed(folder, monkeypatch):
    # Chunks that end inside a prompt, beside rows that sample and one that wants every logprob.
    kinds = [GREEDY, {}, {**GREEDY, "prompt_logprobs": 1}, {**GREEDY, "max_tokens": 3}, {}, GREEDY]
    read, counts = GenerationHead.read, set()

    def noted(self, batch):
        chosen = read(self, batch)
        counts.add(None if chosen is None else len(chosen))
        return chosen

    monkeypatch.setattr(GenerationHead, "read", noted)
    found, _ = generate(folder, kinds, monkeypatch, draws=True)
    assert None in counts
    assert counts - {None}
    monkeypatch.setattr(GenerationHead, "read", lambda self, batch: None)
    assert generate(folder, kinds, monkeypatch, draws=True)[0] == found
