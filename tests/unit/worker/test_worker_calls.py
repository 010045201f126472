"""The number of tensor calls of a step does not grow with the number of its requests."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from octavo import LLM, SamplingParams
from octavo.models.common.decoder import DecoderCausalLM
from octavo.worker.gpu_model_runner import GPUModelRunner
from support.tiny_models import save_tiny

# One after the other over the requests of a batch.
KINDS = [
    {"temperature": 0.0},
    {},
    {"top_p": 0.9, "top_k": 50},
    {"min_p": 0.05},
    {"repetition_penalty": 1.2, "presence_penalty": 0.3},
    {"logit_bias": {4: 1.0}, "allowed_token_ids": list(range(100))},
    {"logprobs": 2},
    {"min_tokens": 9, "stop_token_ids": [7]},
]


class Calls(TorchDispatchMode):
    """Counts the operations that reach a device, by name."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module", params=["llama", "mistral-window", "qwen2-window"])
def llm(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    save_tiny(request.param, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "0")
        patch.setenv("OCTAVO_CPU_THREADS", "1")
        threads = torch.get_num_threads()
        made = LLM(
            str(folder),
            skip_tokenizer_init=True,
            max_model_len=300,
            max_num_seqs=64,
            max_num_batched_tokens=4096,
            enable_prefix_caching=False,
        )
    yield made
    made.shutdown()
    torch.set_num_threads(threads)


def record(monkeypatch, cls, method):
    """A list that gets (the arguments, the counts) of every call of a method."""
    seen = []
    original = getattr(cls, method)

    def counted(self, *args):
        with Calls() as calls:
            result = original(self, *args)
        seen.append((args, calls.counts))
        return result

    monkeypatch.setattr(cls, method, counted)
    return seen


def generate(llm, prompt_lengths, kinds):
    llm.generate(
        [[5 + (i + j) % 150 for j in range(length)] for i, length in enumerate(prompt_lengths)],
        [
            SamplingParams(seed=3, max_tokens=12, ignore_eos=True, **kinds[i % len(kinds)])
            for i in range(len(prompt_lengths))
        ],
        use_tqdm=False,
    )


@pytest.mark.parametrize("kinds", [KINDS[:1], KINDS], ids=["greedy", "every kind"])
def test_a_decode_step(llm, kinds, monkeypatch):
    """Sequences of eight lengths; the whole step, sampling and all, has the very same calls."""
    steps = record(monkeypatch, GPUModelRunner, "execute_model")
    calls = {}
    for num_rows in (8, 64):
        steps.clear()
        generate(llm, [3 + 12 * (i % 8) for i in range(num_rows)], kinds)
        decodes = [counts for (plan,), counts in steps if plan.plain_decode]
        assert all(plan.num_rows == num_rows for (plan,), _ in steps)
        assert len(decodes) == 11
        calls[num_rows] = decodes
    assert calls[8] == calls[64]


def test_the_forward_pass_of_a_prefill(llm, monkeypatch):
    """The same 2048 tokens as 8 prompts or as 64, all longer than any window."""
    passes = record(monkeypatch, DecoderCausalLM, "forward")
    calls = {}
    for num_rows in (8, 64):
        passes.clear()
        generate(llm, [2048 // num_rows] * num_rows, KINDS)
        (input_ids, *_), counts = passes[0]
        assert input_ids.shape == (2048,)
        calls[num_rows] = counts
    assert calls[8] == calls[64]
