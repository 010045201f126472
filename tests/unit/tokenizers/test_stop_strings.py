"""The automaton finds what a plain search finds."""

from hypothesis import given
from hypothesis import strategies as st

from octavo.tokenizers.stop_strings import StopStrings, compile_stops

WORDS = st.text("abc]^-", min_size=1, max_size=5)


@given(st.lists(WORDS, min_size=1, max_size=8), st.text("abc]^-", max_size=40))
def test_all_matches(stops, text):
    automaton = StopStrings(tuple(stops))
    state, position, found = 0, 0, []
    while position < len(text):
        state, position, stop = automaton.scan(state, text, position)
        if stop is not None:
            found.append((position, stop))
    expected = [
        (end, max(matching, key=len))
        for end in range(1, len(text) + 1)
        if (matching := [stop for stop in stops if text[:end].endswith(stop)])
    ]
    assert found == expected


@given(st.lists(WORDS, min_size=1, max_size=8), st.text("abc]^-", max_size=40))
def test_depth_is_the_longest_end_that_begins_a_stop(stops, text):
    automaton = StopStrings(tuple(stops))
    state, position = 0, 0
    while position < len(text):
        state, position, _ = automaton.scan(state, text, position)
    begun = [
        size
        for size in range(len(text) + 1)
        if any(s.startswith(text[len(text) - size :]) for s in stops)
    ]
    assert automaton.depth[state] == max(begun)


def test_equal_sets_share_an_automaton():
    assert compile_stops(("a", "b")) is compile_stops(("a", "b"))
    assert compile_stops(("a", "b")) is not compile_stops(("b", "a"))
