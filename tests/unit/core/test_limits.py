from __future__ import annotations

import pytest

from octavo.core.limits import SchedulerLimits
from octavo.types.errors import ConfigError, RequestError
from unit.core.simulated_executor import make_request


def make(**changes):
    values = {
        "max_num_batched_tokens": 32,
        "max_num_seqs": 8,
        "num_slots": 16,
        "max_model_len": 100,
        "max_concurrent_steps": 2,
        "long_prefill_token_threshold": 0,
        "enable_chunked_prefill": True,
        "num_speculative_tokens": 0,
    }
    return SchedulerLimits(**values | changes)


@pytest.mark.parametrize(
    "name", ["max_num_batched_tokens", "max_num_seqs", "num_slots", "max_concurrent_steps"]
)
def test_sizes_are_positive(name):
    with pytest.raises(ConfigError, match=f"{name}=0"):
        make(**{name: 0})


def test_decode_rows_always_fit_the_budget():
    assert make().max_running == 8
    assert make(max_num_batched_tokens=5).max_running == 5
    assert make(num_speculative_tokens=7).max_running == 4
    assert make(max_num_batched_tokens=2, num_speculative_tokens=7).max_running == 1


def test_largest_chunk():
    assert make().max_chunk == 100
    assert make(long_prefill_token_threshold=5).max_chunk == 5
    whole = make(long_prefill_token_threshold=5, enable_chunked_prefill=False)
    assert whole.max_chunk == 100


def test_splitting():
    assert make().may_split(10)
    assert not make(enable_chunked_prefill=False).may_split(32)
    assert make(enable_chunked_prefill=False).may_split(33)


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "match"),
    [(100, 1, "max_model_len=100"), (101, 0, "max_model_len=100"), (0, 1, "at least one token")],
)
def test_prompts_without_room_are_refused(prompt, max_tokens, match):
    with pytest.raises(RequestError, match=match):
        make().check(make_request("a", prompt, max_tokens))


def test_prompts_that_just_fit():
    make().check(make_request("a", 99, 1))
    make().check(make_request("a", 100, 0))
    make(enable_chunked_prefill=False).check(make_request("a", 32, 1))


def test_without_chunks_a_prompt_must_fit_a_step():
    with pytest.raises(RequestError, match=r"max_num_batched_tokens=32.*enable_chunked_prefill"):
        make(enable_chunked_prefill=False).check(make_request("a", 33, 1))


def test_replayed_requests():
    new = make_request("a", 10, 5)
    new.num_prompt_tokens = 6
    make().check(new)
    new.token_ids.append(1)
    with pytest.raises(RequestError, match="5 output tokens already"):
        make().check(new)
