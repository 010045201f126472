"""The engine on a CUDA device: the tokens of transformers in fp32, whatever is switched on."""

from __future__ import annotations

import random

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

VOCAB = 2048
NUM_TOKENS = 40
PROMPT_LENGTHS = (1, 5, 17, 64, 90, 130, 300, 33)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    from support.tiny_models import save_wide_qwen3  # noqa: PLC0415 (slow)

    folder = tmp_path_factory.mktemp("tiny-qwen3")
    save_wide_qwen3(folder, vocab_size=VOCAB, intermediate_size=512, num_hidden_layers=4)
    return folder


@pytest.fixture(scope="module")
def prompts():
    rng = random.Random(0)
    return [[rng.randrange(1, VOCAB) for _ in range(n)] for n in PROMPT_LENGTHS]


@pytest.fixture(scope="module")
def expected(model_dir, prompts):
    from transformers import Qwen3ForCausalLM  # noqa: PLC0415 (slow)

    model = Qwen3ForCausalLM.from_pretrained(model_dir, dtype=torch.float32).cuda().eval()
    with torch.no_grad():
        return [
            model.generate(
                torch.tensor([prompt], device="cuda"),
                max_new_tokens=NUM_TOKENS,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )[0, len(prompt) :].tolist()
            for prompt in prompts
        ]


def generate(model_dir, prompts, params=None, **options):
    from octavo import LLM, SamplingParams  # noqa: PLC0415 (collected without a GPU too)

    llm = LLM(
        model=str(model_dir),
        skip_tokenizer_init=True,
        dtype=options.pop("dtype", "float32"),
        max_num_seqs=16,
        max_model_len=1024,
        gpu_memory_utilization=0.2,
        **options,
    )
    try:
        params = params or SamplingParams(
            temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True, detokenize=False
        )
        outputs = llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False
        )
        return [output.outputs[0].token_ids for output in outputs]
    finally:
        llm.shutdown()


@pytest.mark.parametrize(
    "options",
    [
        {"enforce_eager": True},
        {},
        {"max_num_batched_tokens": 64},
        {"async_scheduling": False},
        {"enable_prefix_caching": False, "num_gpu_blocks_override": 70},
    ],
    ids=["eager", "graphs", "chunked", "one-in-flight", "preempted"],
)
def test_tokens_of_transformers(model_dir, prompts, expected, options):
    assert generate(model_dir, prompts, **options) == expected


RANDOM = [{}, {"top_p": 0.9}, {"top_k": 20}, {"top_k": 50, "top_p": 0.8, "min_p": 0.02}]
EDITED = [
    {"repetition_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": 0.2},
    {"logit_bias": {7: 4.0, 9: -100.0}, "top_p": 0.95},
    {"allowed_token_ids": list(range(100, 900)), "top_k": 30},
    {"min_tokens": 9, "stop_token_ids": list(range(1000))},
]
HOST = [{"logprobs": 3}, {"temperature": 0.0, "logprobs": 1, "presence_penalty": 1.0}]


@pytest.mark.parametrize(
    "kinds",
    [RANDOM, [*RANDOM, {"temperature": 0.0}, *EDITED], [*EDITED, *HOST]],
    ids=["random", "edited", "host"],
)
def test_seeded_sampling_whatever_is_switched_on(model_dir, prompts, kinds):
    """Rows of every variant of sampling, in graphs and out of them, with other rows and alone."""
    from octavo import SamplingParams  # noqa: PLC0415 (collected without a GPU too)

    params = [
        SamplingParams(
            **{"temperature": 0.9, "seed": i, "ignore_eos": True, **kinds[i % len(kinds)]},
            max_tokens=NUM_TOKENS - 3 * i,
            detokenize=False,
        )
        for i in range(len(prompts))
    ]
    eager = generate(model_dir, prompts, params, enforce_eager=True)
    assert generate(model_dir, prompts, params) == eager
    assert generate(model_dir, prompts, params, async_scheduling=False) == eager
    preempted = {"enable_prefix_caching": False, "num_gpu_blocks_override": 70}
    assert generate(model_dir, prompts, params, **preempted) == eager
    alone = [generate(model_dir, prompts[i : i + 1], params[i : i + 1])[0] for i in (2, 5)]
    assert alone == [eager[2], eager[5]]
