"""Packed weights: logprobs equal bit for bit, alone and in company, in one piece and cut."""

from __future__ import annotations

import random

import pytest

from combos.requests import MAX_MODEL_LEN
from combos.runs import FEW_BLOCKS, start
from octavo.kernels.cpu.packed import NativePacked, packed_kernels
from octavo.types.sampling_params import SamplingParams
from support.tiny_models import save_tiny
from support.tiny_tokenizer import byte_level_backend, save_tokenizer

pytestmark = pytest.mark.skipif(
    not isinstance(packed_kernels(), NativePacked), reason="needs a C compiler and AVX2"
)

LENGTHS = (1, 5, 17, 40, 64, 33, 90, 2, 70, 11)
WAYS = {
    "together": {},
    "chunks of 7": {"max_num_batched_tokens": 7, "max_num_seqs": 4},
    "chunks of 32, one step": {"max_num_batched_tokens": 32, "async_scheduling": False},
    "preempted": {"num_gpu_blocks_override": FEW_BLOCKS, "enable_prefix_caching": False},
    "batch-invariant": {"batch_invariant": True},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("packed")
    save_tiny("llama", path, vocab_size=331, hidden_size=96)
    save_tokenizer(path, byte_level_backend(320))
    return path


def answers(folder, quantization, *, one_by_one=False, **options):
    """Tokens and logprobs of every request."""
    rng = random.Random(0)
    prompts = [{"prompt_token_ids": [rng.randrange(10, 200) for _ in range(n)]} for n in LENGTHS]
    params = [
        SamplingParams(
            max_tokens=16, temperature=(0.0, 1.0)[i % 2], seed=i, logprobs=3, ignore_eos=True
        )
        for i in range(len(prompts))
    ]
    options = {"num_gpu_blocks_override": 600, "max_num_seqs": 16} | options
    llm = start(folder, quantization=quantization, max_model_len=MAX_MODEL_LEN, **options)
    try:
        if one_by_one:
            outputs = [
                llm.generate(prompt, param, use_tqdm=False)[0]
                for prompt, param in zip(prompts, params, strict=True)
            ]
        else:
            outputs = llm.generate(prompts, params, use_tqdm=False)
    finally:
        llm.shutdown()
    return [
        [
            {token: found.logprob for token, found in place.items()}
            for place in output.outputs[0].logprobs
        ]
        for output in outputs
    ]


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_company_and_chunks_change_nothing(folder, quantization):
    alone = answers(folder, quantization, one_by_one=True)
    for name, options in WAYS.items():
        assert answers(folder, quantization, **options) == alone, name
