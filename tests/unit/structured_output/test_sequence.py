"""GrammarSequence: tokens as they come, ends, reasoning before the text."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.structured_output.interface import GrammarError, mask_width
from octavo.structured_output.sequence import GrammarSequence
from octavo.types.sampling_params import ReasoningMarks, SamplingParams, StructuredOutputsParams
from support.grammars import guidance, vocabulary

(EOS,) = vocabulary().eos_token_ids
THINK = ReasoningMarks(["<think>"], ["</think>"])
START = 300  # stands for a token that begins reasoning


def ids(text):
    return vocabulary().tokenizer.encode(text, False)


def sequence(regex="ab?", reasoning=None, start_ids=(), **params):
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
    )


def mask(found):
    """(tokens that may come, whether the text goes on)."""
    masks = np.zeros((1, mask_width(vocabulary().size)), np.int32)
    guidance().fill([(found.grammar, 0)], masks)
    goes_on = found.adjust(masks[0])
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
