"""GrammarSequence: tokens as they come, ends, reasoning before the text."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.structured_output.completion import CompletionSearch
from octavo.structured_output.interface import GrammarError, mask_width
from octavo.structured_output.sequence import MAX_RUN, GrammarSequence, is_writable
from octavo.types.sampling_params import ReasoningMarks, SamplingParams, StructuredOutputsParams
from support.grammars import guidance, vocabulary

(EOS,) = vocabulary().eos_token_ids
THINK = ReasoningMarks(["<think>"], ["</think>"])
START = 300  # stands for a token that begins reasoning


def ids(text):
    return vocabulary().tokenizer.encode(text, False)


def sequence(regex="ab?", reasoning=None, start_ids=(), search=None, **params):
    spec = StructuredOutputsParams(regex=regex, reasoning=reasoning)
    params = SamplingParams(
        **{"eos_token_ids": [EOS], "structured_outputs": spec, "max_tokens": 99} | params
    )
    return GrammarSequence(
        guidance().compile(spec),
        params,
        vocabulary().tokenizer.token_bytes,
        library_ends=vocabulary().ends,
        start_ids=start_ids,
        search=search,
    )


def mask(found, left=99):
    """(tokens that may come, whether the text goes on)."""
    masks = np.zeros((1, mask_width(vocabulary().size)), np.int32)
    guidance().fill([(found.grammar, 0)], masks)
    goes_on = found.adjust(masks[0], left)
    bits = np.unpackbits(masks.view(np.uint8), bitorder="little")[: vocabulary().size]
    return set(bits.nonzero()[0].tolist()), goes_on


def test_only_new_tokens_are_taken_in():
    found = sequence("a{4}")
    prompt = ids("zz")
    found.follow(prompt, 2)
    assert mask(found) == (set(ids("a")), True)
    found.follow(prompt + ids("a"), 2)
    found.follow(prompt + ids("a"), 2)
    found.follow(prompt + ids("a") * 4, 2)  # as after a replay
    assert mask(found) == ({EOS}, True)
    with pytest.raises(GrammarError):
        found.follow(prompt + ids("a") * 4 + ids("b"), 2)


def test_stop_tokens_come_where_the_text_may_end_and_not_before():
    stop = ids("q")[0]
    found = sequence("qab?", stop_token_ids=[stop])
    assert mask(found) == (set(), True)  # it can't begin: its first token would end it
    found = sequence("ab?", stop_token_ids=[stop])
    assert mask(found) == (set(ids("a")), True)
    found.follow(ids("a"), 0)
    assert mask(found) == ({EOS, stop, *ids("b")}, True)


def test_min_tokens_bar_the_end_as_long_as_there_is_more_to_say():
    found = sequence("a{1,3}", min_tokens=3)
    found.follow(ids("a"), 0)
    assert mask(found) == (set(ids("a")), True)
    found.follow(ids("aaa"), 0)
    assert mask(found) == ({EOS}, True)
    found = sequence("a", min_tokens=3)
    found.follow(ids("a"), 0)
    assert mask(found) == (set(), False)


@pytest.mark.parametrize("params", [{"ignore_eos": True}, {"eos_token_ids": None}])
def test_without_an_end_token_a_complete_text_is_over(params):
    found = sequence("ab?", **params)
    found.follow(ids("a"), 0)
    assert mask(found) == (set(ids("b")), True)
    found.follow(ids("ab"), 0)
    assert mask(found) == (set(), False)


def test_reasoning_is_free_and_the_text_after_it_is_not():
    found = sequence(reasoning=ReasoningMarks(["<think>"], ["</think>"], True))
    text = ids("b and so </thin")
    found.follow(text, 0)
    assert not found.masks
    text += ids("k>")
    found.follow(text, 0)
    assert found.masks
    assert mask(found)[0] == set(ids("a"))
    found.follow(text + ids("a"), 0)
    assert mask(found)[0] == {EOS, *ids("b")}


def test_an_answer_may_begin_to_reason_or_not():
    found = sequence(reasoning=THINK, start_ids=[START])
    assert found.masks
    assert mask(found)[0] == {START, *ids("a")}
    found.follow([START, *ids("x")], 0)
    assert not found.masks
    found.follow([START, *ids("x</think>")], 0)
    assert mask(found)[0] == set(ids("a"))

    found = sequence(reasoning=THINK, start_ids=[START])
    found.follow(ids("a"), 0)
    assert mask(found)[0] == {EOS, *ids("b")}


def test_without_a_token_for_it_reasoning_can_t_begin():
    found = sequence(reasoning=THINK)
    assert mask(found)[0] == set(ids("a"))


def test_a_forced_run_is_what_single_masks_would_allow():
    found = sequence("ab(cd|ce)f{3}")
    run = found.forced_run(99)
    assert run == ids("abc")
    assert found.forced_run(2) == ids("ab")
    step = sequence("ab(cd|ce)f{3}")
    for count, token in enumerate(run):
        assert mask(step) == ({token}, True)
        step.follow(run[: count + 1], 0)
    assert len(mask(step)[0]) == 2
    assert step.forced_run(99) == []
    step.follow(ids("abcd"), 0)
    assert step.forced_run(99) == ids("fff")
    assert sequence("a{500}").forced_run(400) == ids("a") * MAX_RUN


def test_a_forced_run_ends_before_an_end():
    assert sequence("abqc", stop_token_ids=ids("q")).forced_run(9) == ids("ab")
    found = sequence("ab")
    found.follow(ids("ab"), 0)
    assert found.forced_run(9) == []
    thinking = sequence("ab", reasoning=ReasoningMarks(["<think>"], ["</think>"], True))
    assert thinking.forced_run(9) == []


@pytest.mark.parametrize(
    ("params", "writable"),
    [
        ({}, True),
        ({"temperature": 0.3, "top_p": 0.5, "seed": 3, "min_tokens": 2, "n": 2}, True),
        ({"stop": ["x"], "stop_token_ids": [4], "prompt_logprobs": 1}, True),
        ({"logprobs": 0}, False),
        ({"frequency_penalty": 0.1}, False),
        ({"bad_words": ["x"]}, False),
        ({"allowed_token_ids": [4]}, False),
        ({"logit_bias": {4: 1.0}}, False),
        ({"extra_args": {"a": 1}}, False),
    ],
)
def test_tokens_are_written_only_where_nothing_hangs_on_sampling_them(params, writable):
    assert is_writable(SamplingParams(**params)) is writable


def steered(regex, **params):
    search = CompletionSearch(vocabulary(), guidance().fill)
    return sequence(regex, search=search, **params)


def test_a_text_is_closed_in_time():
    found = steered('"[a-z]*"(x{9})?')
    (quote,) = ids('"')
    found.follow([quote], 0)
    assert len(mask(found, 3)[0]) > 26
    assert mask(found, 2) == ({quote}, True)
    assert found.forced_run(2) == [quote]
    found.follow(ids('""'), 0)
    assert mask(found, 1) == ({EOS}, True)


def test_a_token_without_a_way_back_is_replaced():
    found = steered("(a+b{40}c|a*)d")
    assert len(mask(found, 30)[0]) == 2
    (a, b, d) = ids("abd")
    assert found.allows(a, 29)
    found.follow([a], 0)
    assert mask(found, 29)[0] == {a, b, d}
    assert not found.allows(b, 28)
    assert mask(found, 29) == ({d}, True)
    found.follow([a, d], 0)
    assert mask(found, 28) == ({EOS}, True)
    roomy = steered("(a+b{40}c|a*)d")
    roomy.follow([a], 0)
    mask(roomy, 90)
    assert roomy.allows(b, 89)


def test_far_from_the_limit_nothing_is_looked_for(monkeypatch):
    found = steered("(a+b{40}c|a*)d")
    monkeypatch.setattr(CompletionSearch, "find", None)
    mask(found, 5000)
    assert found.allows(ids("a")[0], 4999)


def test_an_end_token_is_never_replaced():
    found = steered("ab?")
    found.follow(ids("a"), 0)
    assert mask(found, 3)[0] == {EOS, *ids("b")}
    assert found.allows(EOS, 2)
