"""Where stop strings count: outside of reasoning and calls, however the text arrives."""

import itertools

import pytest

from octavo.tokenizers.stop_scope import StopScopeReader
from octavo.types.sampling_params import StopScope

THINK = StopScope(at_start=[("<think>", "</think>")])
INSIDE = StopScope(inside=True, at_start=[("<think>", "</think>")])
CALLS = StopScope(anywhere=[("<call>", "</call>"), ("[[", "")])
BOTH = StopScope(at_start=THINK.at_start, anywhere=CALLS.anywhere)


def read(scope, pieces):
    """(text in which stop strings count, all text, whether places were told right)."""
    reader = StopScopeReader(scope)
    loud, whole, total = "", "", 0
    for piece in pieces:
        for part, counts, begin in reader.split(piece):
            assert begin + total == len(whole)
            whole += part
            loud += part if counts else ""
        total += len(piece)
    rest = reader.flush()
    return loud + rest, whole + rest


@pytest.mark.parametrize(
    ("scope", "text", "loud"),
    [
        (THINK, "<think>a</think>b", "b"),
        (THINK, " \n<think>a</think>b<think>c", "b<think>c"),
        (THINK, "a<think>b", "a<think>b"),
        (THINK, "<thin", "<thin"),
        (THINK, "<think>a", ""),
        (INSIDE, "a</think>b", "b"),
        (CALLS, "a<call>b</call>c<ca", "ac<ca"),
        (CALLS, "a[[b</call>]]", "a"),
        (BOTH, "<think><call></think>a<call>b", "a"),
        (StopScope(), "ab", "ab"),
    ],
)
def test_the_parts(scope, text, loud):
    for count in range(3):
        for cuts in itertools.combinations(range(1, len(text)), count):
            edges = [0, *cuts, len(text)]
            pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
            assert read(scope, pieces) == (loud, text)
    assert read(scope, list(text)) == (loud, text)
