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


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("typical_p", [0.01, 1.0], [0.0, 1.1]),
        ("top_n_sigma", [-1.0, 0.0, 2.5], [-2.0, 1e4]),
        ("xtc_probability", [0.0, 1.0], [-0.1, 1.1]),
        ("xtc_threshold", [0.0, 1.0], [-0.1, 1.1]),
        ("dynatemp_range", [0.0, 2.0], [-0.1, 2.1]),
        ("dynatemp_exponent", [0.1, 100.0], [0.0, -1.0]),
        ("mirostat_mode", [0, 1, 2], [-1, 3]),
        ("mirostat_tau", [0.1, 100.0], [0.0, 101.0]),
        ("mirostat_eta", [0.0, 1.0], [-0.1, 1.5]),
        ("dry_multiplier", [0.0, 1e3], [-0.1, 1e4]),
        ("dry_base", [1.0, 1e3], [0.9, 1e4]),
        ("dry_allowed_length", [0, 100], [-1]),
        ("dry_penalty_last_n", [-1, 100], [-2]),
        ("dry_sequence_breakers", [None, [], ["\n"]], [[""], "abc", ["x" * 200], ["x"] * 100]),
        ("thinking_token_budget", [None, 0, 100], [-1]),
    ],
)
def test_ranges_of_the_rare_stages(name, good, bad):
    for value in good:
        SamplingParams(**{name: value})
    numbers = [] if isinstance(bad[0], list) else [float("nan"), float("inf"), "1", True]
    for value in [*bad, *numbers]:
        with pytest.raises(RequestError) as caught:
            SamplingParams(**{name: value})
        assert caught.value.param == name


def test_dry_without_a_window_is_off():
    assert SamplingParams(dry_multiplier=2.0, dry_penalty_last_n=0).dry_multiplier == 0.0
