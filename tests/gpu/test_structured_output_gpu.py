"""Grammars on a CUDA device: masks in graphs' company, one or two steps in flight."""

from __future__ import annotations

import json
import random
import re

import jsonschema
import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

VOCAB = 2048


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    from support.tiny_models import save_tiny  # noqa: PLC0415 (slow)
    from support.tiny_tokenizer import byte_level_backend, save_tokenizer  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("structured")
    save_tiny("llama", folder, vocab_size=VOCAB)
    save_tokenizer(folder, byte_level_backend(400))
    return folder


def generate(folder, prompts, params, **options):
    from octavo import LLM  # noqa: PLC0415 (slow)

    llm = LLM(
        str(folder),
        max_model_len=512,
        max_num_seqs=40,
        num_gpu_blocks_override=2000,
        dtype="float32",
        **options,
    )
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return [(list(o.outputs[0].token_ids), o.outputs[0].text, o.error) for o in outputs]


def work():
    from octavo.types.sampling_params import (  # noqa: PLC0415
        SamplingParams,
        StructuredOutputsParams,
    )
    from support.random_schemas import random_schema  # noqa: PLC0415

    schemas = [random_schema(random.Random(number)) for number in range(24)]
    specs = [StructuredOutputsParams(json=schema) for schema in schemas]
    specs += [StructuredOutputsParams(regex="[a-c]{3}-[0-9]{9}")] * 2 + [None] * 6
    params = [
        SamplingParams(
            temperature=1.5 if number % 3 else 0.0,
            seed=number,
            max_tokens=300 if spec else 40,
            structured_outputs=spec,
            frequency_penalty=0.5 if number % 4 == 1 else 0.0,
            top_k=30 if number % 5 == 2 else 0,
            logprobs=2 if number % 7 == 3 else None,
        )
        for number, spec in enumerate(specs)
    ]
    prompts = [[5 + (37 * i + number) % 256 for i in range(3 + number)] for number in range(32)]
    return schemas, prompts, params


def test_answers_fit_and_do_not_depend_on_how_they_are_computed(model_dir):
    schemas, prompts, params = work()
    answers = generate(model_dir, prompts, params)
    assert answers == generate(model_dir, prompts, params, async_scheduling=False)
    assert [tokens for tokens, _, _ in answers] == [
        tokens for tokens, _, _ in generate(model_dir, prompts, params, enforce_eager=True)
    ]
    assert not any(error for _, _, error in answers)
    ended = 0
    for (_, text, _), schema, param in zip(answers, schemas, params, strict=False):
        # Greedy texts of a random model may turn in circles up to their limit.
        if param.temperature:
            jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)
            ended += 1
    assert ended == 16
    for _, text, _ in answers[24:26]:
        assert re.fullmatch("[a-c]{3}-[0-9]{9}", text)
    # Requests without a grammar say what they say alone.
    alone = generate(model_dir, prompts[26:], params[26:])
    assert [tokens for tokens, _, _ in alone] == [tokens for tokens, _, _ in answers[26:]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_equals_the_reference(dtype):
    from octavo.kernels.reference import sampling as reference  # noqa: PLC0415
    from octavo.kernels.token_masks import keep_masked  # noqa: PLC0415

    torch.manual_seed(0)
    logits = torch.randn(64, 151_936, device="cuda").to(dtype)
    masks = torch.randint(-(1 << 31), (1 << 31) - 1, (32, 4748), device="cuda").int()
    index = torch.randperm(64, device="cuda")[:32]
    expected = logits.clone()
    reference.keep_masked(expected, index, masks)
    keep_masked(logits, index, masks)
    assert torch.equal(logits, expected)
