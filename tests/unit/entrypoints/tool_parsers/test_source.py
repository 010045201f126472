"""Source and Markers: reading text that arrives in pieces."""

import pytest

from octavo.entrypoints.tool_parsers.source import Source, markers


def drive(steps, pieces, source):
    """Run a grammar over pieces; returns its result and how many pieces it took."""
    for number, piece in enumerate(pieces):
        source.push(piece)
        try:
            next(steps)
        except StopIteration as end:
            return end.value, number + 1
    source.end(False)
    with pytest.raises(StopIteration) as caught:
        next(steps)
    return caught.value.value, len(pieces)


def test_begun_is_the_longest_beginning_of_a_marker():
    marks = markers(["</think>", "<tool_call>"])
    for text, begun in (("a", 0), ("a<", 1), ("a</thi", 5), ("<too", 4), ("<<", 1), ("</think", 7)):
        assert marks.begun(text, 0) == begun
    assert marks.begun("</th", 2) == 0


def test_no_marker_at_all():
    marks = markers([])
    assert marks.search("abc", 0) is None
    assert marks.begun("abc", 0) == 0


def test_markers_that_begin_each_other_are_refused():
    with pytest.raises(ValueError, match="begins another"):
        markers(["<a", "<ab"])


def test_copy_until_writes_at_once_what_is_no_marker():
    source, written = Source(), []
    steps = source.copy_until(markers(["</x>"]), written.append)
    assert drive(steps, ["ab</", "y</x", ">rest"], source) == ("</x>", 3)
    assert written == ["ab", "</y"]
    assert source.text[source.at :] == "rest"
    assert source.unclaimed() == "</x>"


def test_until_gives_up_at_the_same_place_however_the_text_is_cut():
    for pieces in (["abcdef>"], list("abcdef>"), ["abc", "def>"]):
        source = Source()
        assert drive(source.until(markers([">"]), 4), pieces, source)[0] == ("abcd", None)
        assert source.unclaimed() == "abcd"


def test_unclaimed_is_what_was_read_since_the_last_claim():
    source = Source()
    source.push("one two")
    source.at = 4
    source.claim()
    source.at = 6
    source.push(" three")
    source.at = 3
    assert source.unclaimed() == "two t"[:5]
    assert source.unclaimed() == ""


def test_accept_reads_nothing_where_something_else_follows():
    source = Source()
    assert drive(source.accept("<x>"), ["<", "y"], source)[0] is False
    assert source.text[source.at :] == "<y"


def test_comes_leaves_the_marker_unread():
    source = Source()
    assert drive(source.comes(markers(["<x>", "<y>"])), ["<", "y>z"], source)[0] is True
    assert source.text[source.at :] == "<y>z"
