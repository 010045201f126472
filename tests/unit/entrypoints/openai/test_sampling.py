"""Request fields and defaults -> SamplingParams."""

import pytest

from octavo.entrypoints.openai.sampling import _SAME, SamplingDefaults
from octavo.entrypoints.openai.schema.common import GenerationBody
from octavo.types.errors import RequestError
from octavo.types.sampling_extras import RepetitionDetectionParams
from octavo.types.sampling_params import RequestOutputKind, SamplingParams


def params(defaults=None, max_tokens=None, default_max_tokens=None, **fields):
    return SamplingDefaults(defaults or {}, 100, 20).params(
        GenerationBody(**fields),
        logprobs=None,
        prompt_logprobs=None,
        max_tokens=max_tokens,
        default_max_tokens=default_max_tokens,
    )


def test_an_empty_body_has_neutral_values():
    assert params() == SamplingParams(max_tokens=None, output_kind=RequestOutputKind.FINAL_ONLY)
    assert params(stream=True).output_kind is RequestOutputKind.DELTA


def test_every_field_of_the_same_name_is_taken_over():
    fields = {
        "n": 2, "presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 1.5,
        "temperature": 0.5, "top_p": 0.75, "top_k": 7, "min_p": 0.125, "seed": 3, "stop": ["x"],
        "stop_token_ids": [5], "ignore_eos": True, "min_tokens": 1, "logit_bias": {5: 1.0},
        "allowed_token_ids": [5, 6], "bad_words": ["y"], "detokenize": True,
        "skip_special_tokens": False, "spaces_between_special_tokens": False,
        "include_stop_str_in_output": True, "truncate_prompt_tokens": 9,
        "skip_reading_prefix_cache": True, "typical_p": 0.5, "top_n_sigma": 1.5,
        "xtc_probability": 0.5, "xtc_threshold": 0.25, "dynatemp_range": 0.25,
        "dynatemp_exponent": 2.0, "mirostat_mode": 2, "mirostat_tau": 3.0, "mirostat_eta": 0.25,
        "dry_multiplier": 0.75, "dry_base": 1.5, "dry_allowed_length": 3,
        "dry_penalty_last_n": 64, "dry_sequence_breakers": ["z"], "thinking_token_budget": 8,
        "repetition_detection": RepetitionDetectionParams(max_pattern_size=4),
    }  # fmt: skip
    assert set(fields) == set(_SAME)
    neutral = SamplingParams()
    assert [n for n in fields if n != "detokenize" and fields[n] == getattr(neutral, n)] == []
    found = params(**fields)
    assert {name: getattr(found, name) for name in fields} == fields


def test_plug_ins_get_their_arguments():
    assert params(vllm_xargs={"a": 1}).extra_args == {"a": 1}


def test_explicit_values_win_also_neutral_ones():
    defaults = {"temperature": 0.5, "top_k": 3, "repetition_penalty": 1.2}
    assert params(defaults).temperature == 0.5
    found = params(defaults, temperature=1.0, top_k=-1, repetition_penalty=1.0)
    assert (found.temperature, found.top_k, found.repetition_penalty) == (1.0, 0, 1.0)


@pytest.mark.parametrize(
    ("asked", "of_model", "of_api", "expected"),
    [
        (None, None, None, None),
        (None, None, 16, 16),
        (None, 8, 16, 8),
        (4, 8, 16, 4),
        (0, 8, 16, 0),
    ],
)
def test_where_max_tokens_comes_from(asked, of_model, of_api, expected):
    defaults = {} if of_model is None else {"max_tokens": of_model}
    assert params(defaults, asked, of_api).max_tokens == expected


@pytest.mark.parametrize(
    ("num_prompt", "truncate", "expected"),
    [(50, None, 30), (80, None, 20), (99, None, 1), (100, None, 1), (200, 90, 10), (200, -1, 1)],
)
def test_a_default_length_is_lowered_to_the_room(num_prompt, truncate, expected):
    given = SamplingParams(max_tokens=30, truncate_prompt_tokens=truncate)
    assert SamplingDefaults({}, 100, 20).with_room(given, num_prompt).max_tokens == expected


@pytest.mark.parametrize(
    ("limit", "value", "fine"),
    [
        (20, 20, True),
        (20, 21, False),
        (20, -1, False),
        (20, -2, False),
        (-1, -1, True),
        (-1, -2, False),
    ],
)
def test_the_servers_limit_of_logprobs(limit, value, fine):
    defaults = SamplingDefaults({}, 100, limit)
    if fine:
        defaults.check_logprobs(value, "top_logprobs")
    else:
        with pytest.raises(RequestError, match=f"top_logprobs={value}"):
            defaults.check_logprobs(value, "top_logprobs")
