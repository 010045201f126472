"""Random requests on random engines, against the plain model."""

from __future__ import annotations

import random

import msgspec
import pytest

from combos.answers import assert_same
from combos.requests import MAX_MODEL_LEN, Work, ids
from combos.runs import run
from support.sampling_requests import random_params

NUM_REQUESTS = 60


def random_request(rng: random.Random, number: int) -> Work:
    """A prompt that may share a beginning with others', and any parameters."""
    prompt = ids(rng.choice([1, 2, 15, 16, 17, 31, 33, 48, 64, 100]), rng.randrange(4))
    if rng.random() < 0.5:
        prompt = prompt[: rng.randint(1, len(prompt))] + ids(rng.randint(1, 20), rng.randrange(50))
    scored = rng.random() < 0.15
    params = msgspec.structs.replace(
        random_params(rng, 331, rare=rng.random() < 0.4),
        dry_breaker_ids=None,
        dry_sequence_breakers=rng.choice([None, [], ["e", "th"]]),
        eos_token_ids=None,
        bad_words_token_ids=None,
        bad_words=rng.sample(["e", "th", "fox", "世", "\u00e9", "10"], 2) if scored else None,
        stop=rng.sample([*"abcdefghijABCDEFGHIJ0123456789", "th"], 4),
        include_stop_str_in_output=rng.random() < 0.3,
        min_tokens=0,
        max_tokens=rng.choice([0, 1, 2, 5, 20, 40]),
        n=rng.choice([1, 1, 1, 2]),
        seed=rng.randrange(-(1 << 63), 1 << 63),
        prompt_logprobs=rng.choice([0, 2]) if scored else None,
        skip_special_tokens=rng.random() < 0.5,
    )
    if rng.random() < 0.3:
        params = msgspec.structs.replace(params, min_tokens=min(params.max_tokens or 0, 6))
    return Work(f"request {number}", prompt, params)


def random_options(rng: random.Random, min_blocks: int) -> dict:
    """An engine of any shape that can hold one request."""
    block_size = rng.choice([4, 8, 16, 32])
    tokens = rng.choice([8, 16, 40, 200, 2000])
    whole = tokens >= MAX_MODEL_LEN and rng.random() < 0.3
    return {
        "block_size": block_size,
        "max_num_batched_tokens": tokens,
        "max_num_seqs": min(rng.choice([1, 3, 8, 20]), tokens),
        "num_gpu_blocks_override": min_blocks * MAX_MODEL_LEN // block_size
        + rng.choice([2, 5, 20, 500]),
        "enable_prefix_caching": rng.random() < 0.7,
        "prefix_caching_hash_algo": rng.choice(["sha256", "xxhash"]),
        "async_scheduling": rng.random() < 0.6,
        "enable_chunked_prefill": not whole,
        "long_prefill_token_threshold": 0 if whole else rng.choice([0, 0, 5, 24]),
        "max_model_len": MAX_MODEL_LEN,
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("name", "groups"), [("llama", 1), ("mistral-window", 1), ("qwen2-window", 3)]
)
def test_random_requests_on_a_random_engine(family, name, groups, seed):
    rng = random.Random(f"{name} {seed}")
    tiny = family(name)
    works = [random_request(rng, number) for number in range(NUM_REQUESTS)]
    options = random_options(rng, groups)
    found = run(tiny.folder, works, **options)
    assert_same([tiny.plain.answer(work) for work in works], found.answers, str(options))
