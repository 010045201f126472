"""Text and stop strings come out the same however the tokens were grouped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.engine.detokenizer import IncrementalDetokenizer
from octavo.types.request import EngineCoreRequest
from octavo.types.sampling_params import SamplingParams, StopScope
from support.tiny_tokenizer import byte_fallback, byte_level

LEVEL = byte_level()


def make(tokenizer=LEVEL, prompt=(), **params):
    request = EngineCoreRequest(
        "r", list(prompt), len(prompt), SamplingParams(**params), 0, 0.0, 1 << 20
    )
    return IncrementalDetokenizer(tokenizer, request)


def run(ids, groups=None, tokenizer=LEVEL, stop_terminated=False, **params):
    """(deltas, stop string, detokenizer) of ids fed in groups of the given sizes."""
    detokenizer = make(tokenizer, **params)
    deltas, position, stop = [], 0, None
    sizes = iter(groups or [])
    while position < len(ids) and stop is None:
        size = next(sizes, 1)
        last = position + size >= len(ids)
        stop = detokenizer.update(ids[position : position + size], last and stop_terminated)
        deltas.append(detokenizer.get_next_output_text(False, True))
        position += size
    deltas.append(detokenizer.get_next_output_text(True, True))
    return deltas, stop, detokenizer


def split(text, *sizes):
    """Token ids of pieces of a text, each piece encoded by itself."""
    ids, position = [], 0
    for size in sizes:
        ids += LEVEL.encode(text[position : position + size], add_special_tokens=False)
        position += size
    return ids + LEVEL.encode(text[position:], add_special_tokens=False)


def letters(text):
    return split(text, *[1] * len(text))


def expected_stop(ids, stops, min_tokens, include):
    """Read the whole text at once: (text, number of tokens, stop string)."""
    text, ends = "", []
    detokenizer = make()
    for count, token_id in enumerate(ids, 1):
        detokenizer.update([token_id], False)
        new = detokenizer.get_next_output_text(False, True)
        text += new
        ends += [count] * len(new)
    for end, count in enumerate(ends, 1):
        matching = [stop for stop in stops if text[:end].endswith(stop)]
        if matching and count > min_tokens:
            longest = max(matching, key=len)
            return text[: end if include else end - len(longest)], count, longest
    return LEVEL.decode(ids), len(ids), None


@given(
    text=st.text("ab é你\n", max_size=30),
    stops=st.lists(st.text("ab é你\n", min_size=1, max_size=4), min_size=1, max_size=5),
    groups=st.lists(st.integers(1, 6), max_size=30),
    cuts=st.lists(st.integers(1, 3), max_size=30),
    min_tokens=st.integers(0, 6),
    include=st.booleans(),
)
def test_stop_strings_for_any_grouping(text, stops, groups, cuts, min_tokens, include):
    ids = split(text, *cuts)
    expected, num_tokens, stop = expected_stop(ids, stops, min_tokens, include)
    params = {"stop": stops, "min_tokens": min_tokens, "max_tokens": None}
    deltas, found, detokenizer = run(ids, groups, include_stop_str_in_output=include, **params)
    assert "".join(deltas) == expected
    assert found == stop
    assert detokenizer.output_token_ids == ids[:num_tokens]
    assert detokenizer.num_output_tokens == num_tokens
    assert detokenizer.text == expected


@given(st.text(max_size=40), st.lists(st.integers(1, 5), max_size=40), st.booleans())
def test_deltas_join_to_the_decode(text, groups, skip):
    for tokenizer in (LEVEL, byte_fallback()):
        ids = tokenizer.encode(text, add_special_tokens=False)
        deltas, stop, detokenizer = run(ids, groups, tokenizer, skip_special_tokens=skip)
        assert "".join(deltas) == tokenizer.decode(ids, skip) == detokenizer.text
        assert stop is None


@given(st.lists(st.integers(0, LEVEL.vocab_size), max_size=30), st.booleans())
def test_any_ids_join_to_the_decode(ids, skip):
    deltas, _, _ = run(ids, skip_special_tokens=skip)
    assert "".join(deltas) == LEVEL.decode(ids, skip)


def test_cumulative_text_grows_to_the_decode():
    ids = LEVEL.encode("hello 你好 world", add_special_tokens=False)
    detokenizer, previous = make(), ""
    for token_id in ids:
        detokenizer.update([token_id], False)
        text = detokenizer.get_next_output_text(False, False)
        assert text.startswith(previous)
        assert "\ufffd" not in text
        previous = text
    assert detokenizer.get_next_output_text(True, False) == "hello 你好 world"


def test_stop_string_over_several_tokens_never_leaks():
    deltas, stop, _ = run(letters("count STOP here"), stop=["STOP", "STOW"])
    assert stop == "STOP"
    assert "".join(deltas) == "count "
    assert not any("S" in delta for delta in deltas)


def test_only_what_may_begin_a_stop_string_is_held():
    detokenizer = make(stop=["\n\nUser:"])
    detokenizer.update(letters("hello"), False)
    assert detokenizer.get_next_output_text(False, True) == "hello"
    detokenizer.update(letters("\n\nU"), False)
    assert detokenizer.get_next_output_text(False, True) == ""
    detokenizer.update(letters("p"), False)
    assert detokenizer.get_next_output_text(False, True) == "\n\nUp"


def test_beginning_of_a_stop_string_comes_out_at_the_end():
    deltas, stop, _ = run(letters("a STO"), stop="STOP")
    assert stop is None
    assert deltas[-1] == "STO"


@pytest.mark.parametrize(
    ("stops", "text", "stop"),
    [
        (["c", "bcd"], "ab", "c"),  # ends first, though it begins later
        (["cd", "bcd"], "a", "bcd"),  # end together: the longest
    ],
)
def test_which_match_wins(stops, text, stop):
    for ids in (letters("abcdef"), LEVEL.encode("abcdef", add_special_tokens=False)):
        deltas, found, _ = run(ids, stop=stops)
        assert ("".join(deltas), found) == (text, stop)


def test_match_at_min_tokens_does_not_count():
    ids = letters("axbxcxd")
    deltas, stop, detokenizer = run(ids, stop="x", min_tokens=4)
    assert ("".join(deltas), stop, detokenizer.num_output_tokens) == ("axbxc", "x", 6)


def test_tokens_after_the_match_are_dropped():
    ids = letters("ab.cd")
    deltas, stop, detokenizer = run(ids, [5], stop=".")
    assert ("".join(deltas), stop, detokenizer.output_token_ids) == ("ab", ".", ids[:3])


def test_fallback_stop_is_found_in_the_run_that_held_it():
    """A newline is a byte token here; the token after it is not part of the output."""
    tokenizer = byte_fallback()
    ids = tokenizer.backend.encode("a\nthe", add_special_tokens=False).ids
    newline = ids.index(tokenizer.backend.token_to_id("<0x0A>"))
    deltas, stop, detokenizer = run(ids, tokenizer=tokenizer, stop="\n")
    assert ("".join(deltas), stop) == ("a", "\n")
    assert detokenizer.output_token_ids == ids[: newline + 1]


def test_stop_string_that_only_the_end_reveals():
    tokenizer = byte_fallback()
    ids = [tokenizer.backend.token_to_id(token) for token in ("a", "<0x0A>")]
    deltas, stop, detokenizer = run(ids, tokenizer=tokenizer, stop="\n")
    assert ("".join(deltas), stop, detokenizer.num_output_tokens) == ("a", None, 2)


def test_stop_token_does_not_count_for_text_before_it():
    tokenizer = byte_fallback()
    ids = [tokenizer.backend.token_to_id(token) for token in ("a", "<0x0A>", "b")]
    for min_tokens, text in ((1, "a"), (2, "a\n")):
        params = {"stop": "\n", "min_tokens": min_tokens, "stop_terminated": True}
        assert "".join(run(ids, tokenizer=tokenizer, **params)[0]) == text


@pytest.mark.parametrize(("include", "text"), [(False, "ab"), (True, "abX")])
def test_text_of_a_stop_token(include, text):
    ids = letters("abX")
    deltas, _, detokenizer = run(ids, stop_terminated=True, include_stop_str_in_output=include)
    assert "".join(deltas) == text
    assert detokenizer.output_token_ids == ids


def test_end_token_is_shown_only_with_both_settings():
    ids = [*letters("ab"), LEVEL.eos_token_id]
    for include, skip, text in ((True, False, "ab</s>"), (True, True, "ab"), (False, False, "ab")):
        deltas, _, _ = run(
            ids, stop_terminated=True, include_stop_str_in_output=include, skip_special_tokens=skip
        )
        assert "".join(deltas) == text


def test_length_limit_inside_a_character():
    ids = LEVEL.encode("a", add_special_tokens=False)
    first = next(i for i in range(LEVEL.vocab_size) if LEVEL.token_bytes(i) == b"\xe4")
    deltas, _, _ = run([*ids, first])
    assert deltas == ["a", "", "\ufffd"]


@pytest.mark.parametrize(("tokenizer", "detokenize"), [(LEVEL, False), (None, True)])
def test_without_text(tokenizer, detokenize):
    detokenizer = make(tokenizer, detokenize=detokenize)
    assert detokenizer.update([1, 2, 3], True) is None
    assert detokenizer.get_next_output_text(True, True) == detokenizer.text == ""
    assert detokenizer.output_token_ids == [1, 2, 3]


def test_output_continues_the_prompt():
    tokenizer = byte_fallback()
    prompt = tokenizer.encode("the", add_special_tokens=False)
    detokenizer = make(tokenizer, prompt)
    detokenizer.update(prompt, False)
    assert detokenizer.get_next_output_text(True, False) == " the"


SCOPE = StopScope(at_start=[("<think>", "</think>")], anywhere=[("<call>", "</call>")])


@pytest.mark.parametrize(
    ("text", "stop", "shown"),
    [
        ("<think>use X now</think>Done", "X", "<think>use X now</think>Done"),
        ("<think>use X now</think>Do X ne", "X", "<think>use X now</think>Do "),
        ("a <call>X</call> b X", "X", "a <call>X</call> b "),
        ("<think>a</think>", "</th", "<think>a</think>"),
        ("a <cat> X", "X", "a <cat> "),
        ("a <ca", "ca", "a <"),
        ("e</think>", "ee", "e</think>"),
    ],
)
def test_stop_strings_count_within_their_scope_only(text, stop, shown):
    ids = LEVEL.encode(text)
    for size in (1, 2, 3, len(ids)):
        deltas, _, detokenizer = run(ids, [size] * len(ids), stop=stop, stop_scope=SCOPE)
        assert "".join(deltas) == detokenizer.text == shown
