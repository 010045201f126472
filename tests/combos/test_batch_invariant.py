"""Batch-invariant mode: logprobs equal bit for bit, alone and in company, in one piece and cut."""

from __future__ import annotations

import random

import pytest

from combos.requests import MAX_MODEL_LEN
from combos.runs import FEW_BLOCKS, start
from octavo.kernels.cpu.library import native_library
from octavo.types.sampling_params import SamplingParams

pytestmark = pytest.mark.skipif(native_library() is None, reason="needs a C compiler")

LENGTHS = (1, 5, 17, 40, 64, 33, 90, 2, 70, 11)
WAYS = {
    "together": {},
    "chunks of 7": {"max_num_batched_tokens": 7, "max_num_seqs": 4},
    "chunks of 32, one step": {"max_num_batched_tokens": 32, "async_scheduling": False},
    "no prefix cache": {"enable_prefix_caching": False},
    "preempted": {"num_gpu_blocks_override": FEW_BLOCKS},
}


def requests():
    rng = random.Random(0)
    prompts = [[rng.randrange(10, 200) for _ in range(length)] for length in LENGTHS]
    params = [
        SamplingParams(
            max_tokens=20,
            temperature=(0.0, 1.0)[i % 2],
            seed=i,
            logprobs=5,
            prompt_logprobs=2 if i % 3 == 0 else None,
            ignore_eos=True,
        )
        for i in range(len(prompts))
    ]
    return [{"prompt_token_ids": prompt} for prompt in prompts], params


def values(output):
    """Every number that came of a request: exact, as Python compares floats."""
    prompt = output.prompt_logprobs or []
    places = [*output.outputs[0].logprobs, *(place for place in prompt if place is not None)]
    return [{token: found.logprob for token, found in place.items()} for place in places]


def generate(folder, prompts, params, **options):
    """(values of each request, preemptions) in batch-invariant mode."""
    options = {"num_gpu_blocks_override": 600, "max_num_seqs": 16} | options
    llm = start(folder, batch_invariant=True, max_model_len=MAX_MODEL_LEN, **options)
    try:
        outputs = llm.generate(prompts, params, use_tqdm=False)
        counted = {metric.name: metric for metric in llm.get_metrics()}
        return list(map(values, outputs)), counted["octavo:num_preemptions"].value
    finally:
        llm.shutdown()


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma"])
def test_logprobs_are_equal_bit_for_bit(family, name):
    folder = family(name).folder
    prompts, params = requests()
    expected = {}
    llm = start(
        folder, batch_invariant=True, max_model_len=MAX_MODEL_LEN, enable_prefix_caching=False
    )
    for i in (0, 3, 6, 7, 8):
        (output,) = llm.generate([prompts[i]], [params[i]], use_tqdm=False)
        expected[i] = values(output)
    llm.shutdown()
    for way, options in WAYS.items():
        found, preemptions = generate(folder, prompts, params, **options)
        assert {i: found[i] for i in expected} == expected, way
        assert (preemptions > 0) == (way == "preempted")
