"""Words for the rungs of a ladder."""

import pytest

from octavo.bench.rungs import LADDERS, Group, Lengths, parse_rung, parse_rungs
from octavo.types.errors import ConfigError


def test_a_word_says_everything():
    rung = parse_rung("decode:1x32768+31x512/256")
    assert rung.kind == "decode"
    assert rung.groups == (Group(1, Lengths(32768, 32768)), Group(31, Lengths(512, 512)))
    assert rung.output == Lengths(256, 256)
    assert rung.count == 32
    assert parse_rung("batch:256x100-1024/5-9").groups == (Group(256, Lengths(100, 1024)),)
    assert parse_rung("batch:256x100-1024/5-9").output == Lengths(5, 9)
    prefix = parse_rung("prefix:8192+128x64/64")
    assert (prefix.shared, prefix.groups) == (8192, (Group(128, Lengths(64, 64)),))
    assert parse_rung("start:cold").cold
    assert not parse_rung("start:warm").cold


def test_a_prefill_is_a_time_or_a_rate():
    assert list(parse_rung("prefill:1x1024").figures) == ["time"]
    assert list(parse_rung("prefill:400x1024").figures) == ["input"]


@pytest.mark.parametrize("name", LADDERS)
def test_ladders_are_rungs(name):
    rungs = parse_rungs([name])
    assert [rung.word for rung in rungs] == LADDERS[name].split()
    assert parse_rungs([name, rungs[3].word]) == rungs


@pytest.mark.parametrize(
    "word",
    ["", "decode", "decode:", "decode:3", "decode:0x5", "decode:3x-5", "decode:3x5/", "walk:1x1",
     "prefill:1x5/3", "prefix:3x5", "prefix:64", "start:hot", "batch:1x9-5", "batch:1x5/2-1",
     "batch:1x5+", "decode:1x1e3"],
)  # fmt: skip
def test_words_that_say_nothing(word):
    with pytest.raises(ConfigError, match="rungs"):
        parse_rung(word)


def test_lengths():
    lengths = Lengths(100, 1024)
    assert lengths.mean == 562
    assert lengths.mean_square == pytest.approx(
        sum(n * n for n in range(100, 1025)) / 925, rel=0.01
    )
