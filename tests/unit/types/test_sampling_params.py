"""The bounds of every parameter, told by its name."""

import math

import pytest

from octavo.types.errors import RequestError
from octavo.types.sampling_params import SamplingParams, StopScope

RANGES = {
    "n": (1, 16384),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "repetition_penalty": (1e-6, 1e6),
    "temperature": (0.0, 2.0),
    "top_k": (-1, 1 << 31),
    "min_p": (0.0, 1.0),
    "seed": (-(1 << 63), (1 << 63) - 1),
    "max_tokens": (0, 1 << 31),
    "logprobs": (-1, 1 << 31),
    "prompt_logprobs": (-1, 1 << 31),
}
FLOATS = (
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "temperature",
    "top_p",
    "min_p",
)


@pytest.mark.parametrize("name", RANGES)
def test_ranges(name):
    low, high = RANGES[name]
    step = 1 if isinstance(low, int) else 1e-9
    for value in (low, high):
        SamplingParams(**{name: value})
    for value in (low - step, high * (1 + 1e-9) + step, "1", True, None if name == "n" else []):
        with pytest.raises(RequestError, match=name) as caught:
            SamplingParams(**{name: value})
        assert caught.value.param == name


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_are_finite(name, value):
    with pytest.raises(RequestError, match=name):
        SamplingParams(**{name: value})


@pytest.mark.parametrize("value", [math.nan, math.inf, 101, -101, "1", None])
def test_a_bias_is_a_number_up_to_a_hundred(value):
    with pytest.raises(RequestError, match="logit_bias") as caught:
        SamplingParams(logit_bias={5: value})
    assert caught.value.param == "logit_bias"


def test_top_p_allows_at_least_something():
    SamplingParams(top_p=1e-9)
    with pytest.raises(RequestError, match="top_p"):
        SamplingParams(top_p=0.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop", ["x"] * 65),
        ("stop", "x" * 1025),
        ("stop", [""]),
        ("stop", [1]),
        ("stop", 5),
        ("stop_token_ids", 5),
        ("stop_token_ids", [1] * 1025),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", [True]),
        ("allowed_token_ids", []),
        ("allowed_token_ids", [1.5]),
        ("bad_words", ["x"] * 1025),
        ("bad_words", ["x" * 1025]),
        ("bad_words", ["x" * 1000] * 33),
        ("bad_words", [""]),
        ("logit_bias", dict.fromkeys(range(4097), 1.0)),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {"1": 1.0}),
        ("truncate_prompt_tokens", 0),
        ("truncate_prompt_tokens", -2),
    ],
)
def test_lists_are_bounded(name, value):
    with pytest.raises(RequestError, match=name) as caught:
        SamplingParams(**{name: value})
    assert caught.value.param == name


def test_pairs_that_contradict_each_other():
    with pytest.raises(RequestError, match="min_tokens=5 is above max_tokens=4"):
        SamplingParams(min_tokens=5, max_tokens=4)
    with pytest.raises(RequestError, match="stop_token_ids"):
        SamplingParams(stop="x", detokenize=False)


def test_values_that_stand_for_others():
    params = SamplingParams(stop="x", seed=-1, top_k=-1, temperature=1e-6)
    assert (params.stop, params.seed, params.top_k, params.temperature) == (["x"], None, 0, 0.0)
    assert params.greedy
    assert SamplingParams(temperature=1e-4).temperature == 0.01


def test_marks_of_a_stop_scope_are_bounded():
    for pairs in ([("", "x")], [("x" * 2000, "")], [(str(i), "") for i in range(200)]):
        with pytest.raises(RequestError, match="stop_scope"):
            SamplingParams(stop_scope=StopScope(anywhere=pairs))
    SamplingParams(stop_scope=StopScope(anywhere=[("a", "")]))
