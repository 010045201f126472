"""Admission: every number and list is bounded, and what only the engine knows is filled in."""

import dataclasses
import functools

import pytest

from octavo.checkpoints.locate import find_model
from octavo.engine.input_processor import MAX_CHARS_PER_TOKEN, InputProcessor, RequestLimits
from octavo.engine.prompts import parse_prompt
from octavo.tokenizers.tokenizer import load_tokenizer
from octavo.types.errors import RequestError
from octavo.types.request import LoRARequest
from octavo.types.sampling_params import SamplingParams
from support.tiny import EOS, VOCAB_SIZE, tiny_folder

LIMITS = RequestLimits(
    vocab_size=VOCAB_SIZE,
    max_model_len=128,
    max_logprobs=20,
    eos_token_ids=(EOS, 9, VOCAB_SIZE + 5),
    takes_priority=False,
    clamp_max_tokens=False,
)


@functools.cache
def tokenizer():
    return load_tokenizer(find_model(tiny_folder()))


def processor(with_tokenizer=True, seed=0, **limits):
    changed = dataclasses.replace(LIMITS, **limits)
    return InputProcessor(changed, tokenizer() if with_tokenizer else None, seed)


def admit(inputs, prompt, params=None, **kwargs):
    parsed = parse_prompt(prompt)
    params = params or SamplingParams()
    return inputs.make_request("r", parsed, inputs.tokenize(parsed), params, **kwargs)


def test_a_request_is_complete():
    params = SamplingParams(seed=5, max_tokens=7)
    request = admit(
        processor(),
        {"prompt": "hello", "cache_salt": "s"},
        params,
        arrival_time=1.5,
        trace_headers={"traceparent": "00"},
    )
    assert request.token_ids == tokenizer().encode("hello")
    assert request.num_prompt_tokens == 5
    assert (request.seed, request.max_tokens, request.arrival_time) == (5, 7, 1.5)
    assert request.cache_salt == "s"
    assert request.trace_headers == {"traceparent": "00"}
    assert request.sampling_params.eos_token_ids == [EOS, 9]
    assert params.eos_token_ids is None, "the caller's object is left alone"


def test_equal_ids_of_clients_become_different_ones():
    inputs = processor()
    ids = {admit(inputs, "a").request_id for _ in range(3)}
    assert len(ids) == 3
    assert all(id_.endswith(":r") for id_ in ids)


def test_seeds_come_from_the_engines_seed():
    first, second = processor(seed=1), processor(seed=1)
    seeds = [admit(first, "a").seed for _ in range(3)]
    assert seeds == [admit(second, "a").seed for _ in range(3)]
    assert len(set(seeds)) == 3
    assert seeds != [admit(processor(seed=2), "a").seed for _ in range(3)]
    assert 0 <= admit(first, "a", SamplingParams(seed=-7)).seed < 1 << 63


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "expected"),
    [(100, None, 28), (127, None, 1), (100, 28, 28), (127, 1, 1), (128, 0, 0), (1, 0, 0)],
)
def test_max_tokens_fill_the_models_length(num_prompt, max_tokens, expected):
    request = admit(processor(), [5] * num_prompt, SamplingParams(max_tokens=max_tokens))
    assert request.max_tokens == expected


@pytest.mark.parametrize(
    ("num_prompt", "params", "param"),
    [
        (0, {}, "prompt"),
        (128, {"max_tokens": 1}, "prompt"),
        (128, {"max_tokens": None}, "prompt"),
        (129, {"max_tokens": 0}, "prompt"),
        (100, {"max_tokens": 29}, "max_tokens"),
        (100, {"max_tokens": None, "min_tokens": 29}, "min_tokens"),
    ],
)
def test_what_is_too_long(num_prompt, params, param):
    with pytest.raises(RequestError) as caught:
        admit(processor(), [5] * num_prompt, SamplingParams(**params))
    assert caught.value.param == param


def test_max_tokens_may_be_clamped():
    inputs = processor(clamp_max_tokens=True)
    assert admit(inputs, [5] * 60, SamplingParams(max_tokens=100)).max_tokens == 68
    with pytest.raises(RequestError, match="min_tokens"):
        admit(inputs, [5] * 60, SamplingParams(max_tokens=100, min_tokens=69))


@pytest.mark.parametrize(
    ("keep", "max_tokens", "expected"),
    [(3, 8, 3), (500 - 372, 0, 128), (-1, 8, 120), (-1, None, 127), (-1, 0, 128)],
)
def test_truncation_keeps_the_end(keep, max_tokens, expected):
    ids = [5 + i % 50 for i in range(300)]
    params = SamplingParams(truncate_prompt_tokens=keep, max_tokens=max_tokens)
    assert admit(processor(), ids, params).token_ids == ids[-expected:]


def test_truncating_to_more_than_fits_is_refused():
    with pytest.raises(RequestError) as caught:
        admit(processor(), [5], SamplingParams(truncate_prompt_tokens=129))
    assert caught.value.param == "truncate_prompt_tokens"


def test_ids_without_a_token_are_accepted_up_to_the_models_vocabulary():
    assert tokenizer().vocab_size < VOCAB_SIZE - 1
    assert admit(processor(), [VOCAB_SIZE - 1]).token_ids == [VOCAB_SIZE - 1]


@pytest.mark.parametrize("bad", [[VOCAB_SIZE], [-1], [0, 1, 10**7], [1 << 70]])
def test_ids_outside_the_vocabulary_are_named(bad):
    with pytest.raises(RequestError, match=str(bad[-1])) as caught:
        admit(processor(), bad)
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"stop_token_ids": [VOCAB_SIZE]}, "stop_token_ids"),
        ({"allowed_token_ids": [3, VOCAB_SIZE]}, "allowed_token_ids"),
        ({"logit_bias": {99999999: -100}}, "logit_bias"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"stop": ["\ud83d"]}, "stop"),
        ({"bad_words": ["\ud83d"]}, "bad_words"),
        ({"extra_args": {"f": object()}}, "extra_args"),
        ({"extra_args": {"f": 1 << 80}}, "extra_args"),
        ({"extra_args": {"f": "\ud83d"}}, "extra_args"),
        ({"extra_args": {"f": "x" * (1 << 20)}}, "extra_args"),
    ],
)
def test_parameters_the_engine_refuses(params, param):
    with pytest.raises(RequestError) as caught:
        admit(processor(), "a", SamplingParams(**params))
    assert caught.value.param == param


def test_fields_set_after_construction_are_checked_too():
    params = SamplingParams()
    params.temperature = float("nan")
    with pytest.raises(RequestError) as caught:
        admit(processor(), "a", params)
    assert caught.value.param == "temperature"


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"allowed_token_ids": [9, EOS], "min_tokens": 1}, "allowed_token_ids"),
        (
            {"allowed_token_ids": [9, 5], "stop_token_ids": [5], "min_tokens": 1},
            "allowed_token_ids",
        ),
        (
            {"allowed_token_ids": tokenizer().encode("a", False), "bad_words": ["a"]},
            "allowed_token_ids",
        ),
        ({"stop_token_ids": list(range(VOCAB_SIZE)), "min_tokens": 1}, "min_tokens"),
    ],
)
def test_parameters_that_leave_no_token(params, param):
    with pytest.raises(RequestError, match="no token to choose") as caught:
        admit(processor(), "a", SamplingParams(**params))
    assert caught.value.param == param


@pytest.mark.parametrize(
    "params",
    [
        {"allowed_token_ids": [9, EOS]},
        {"allowed_token_ids": [9, EOS, 5], "min_tokens": 1},
        {"allowed_token_ids": [9, EOS], "min_tokens": 1, "ignore_eos": True},
        {"stop_token_ids": list(range(VOCAB_SIZE))},
    ],
)
def test_one_token_left_is_enough(params):
    admit(processor(), "a", SamplingParams(**params))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 1.5),
        ("seed", 1.0),
        ("max_tokens", 2.5),
        ("ignore_eos", "yes"),
        ("detokenize", 1),
        ("bad_words", "abc"),
        ("output_kind", 7),
        ("extra_args", "x"),
        ("extra_args", {1: 2}),
        ("skip_reading_prefix_cache", 1),
    ],
)
def test_what_the_core_could_not_decode_is_refused(field, value):
    params = SamplingParams()
    setattr(params, field, value)
    with pytest.raises(RequestError, match=field) as caught:
        admit(processor(), "a", params)
    assert caught.value.param == field


def test_trace_headers_are_strings():
    for headers in ({"a": 1}, {1: "a"}):
        with pytest.raises(RequestError, match="trace_headers"):
            admit(processor(), "a", trace_headers=headers)
    assert admit(processor(), "a", trace_headers={"a": "b"}).trace_headers == {"a": "b"}


def test_lists_may_be_tuples():
    params = admit(processor(), "a", SamplingParams(stop=("b",), stop_token_ids=(5,)))
    assert params.sampling_params.stop_strings == ["b"]


def test_unlimited_logprobs():
    inputs = processor(max_logprobs=-1)
    assert admit(inputs, "a", SamplingParams(logprobs=-1)).sampling_params.logprobs == -1
    whole = processor(max_logprobs=VOCAB_SIZE)
    assert admit(whole, "a", SamplingParams(logprobs=-1)).sampling_params.logprobs == -1


@pytest.mark.parametrize("priority", [1, -1, "1", 1.0, True, 1 << 40])
def test_priority_needs_the_policy(priority):
    with pytest.raises(RequestError) as caught:
        admit(processor(), "a", priority=priority)
    assert caught.value.param == "priority"


def test_priority_is_passed_on():
    assert admit(processor(takes_priority=True), "a", priority=-3).priority == -3
    assert admit(processor(), "a", priority=0).priority == 0


def test_lora_is_refused():
    with pytest.raises(RequestError) as caught:
        admit(processor(), "a", lora_request=LoRARequest("a", 1, "/tmp/a"))
    assert caught.value.param == "lora_request"


def test_bad_words_are_spelt_with_and_without_a_blank():
    encode = tokenizer().encode
    words = admit(processor(), "a", SamplingParams(bad_words=["of", " of", "  "])).sampling_params
    assert words.bad_words_token_ids == [encode("of"), encode(" of")]
    assert admit(processor(), "a").sampling_params.bad_words_token_ids is None


def test_a_long_text_is_refused_before_it_is_tokenized(monkeypatch):
    inputs = processor()
    monkeypatch.setattr(inputs._tokenizer, "encode", lambda text: pytest.fail("tokenized"))
    with pytest.raises(RequestError) as caught:
        inputs.tokenize(parse_prompt("x" * (MAX_CHARS_PER_TOKEN * 128 + 1)))
    assert caught.value.param == "prompt"


def test_an_empty_text_has_no_tokens():
    with pytest.raises(RequestError, match="empty"):
        admit(processor(), "")


def test_without_a_tokenizer_only_ids_are_served():
    inputs = processor(with_tokenizer=False)
    assert admit(inputs, [5]).token_ids == [5]
    for prompt, params in [("a", {}), ([5], {"stop": "x"}), ([5], {"bad_words": ["x"]})]:
        with pytest.raises(RequestError):
            admit(inputs, prompt, SamplingParams(**params))
