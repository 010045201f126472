"""Readable log-probabilities: pieces of characters joined, the sampled token always there."""

import pytest

from octavo.engine.logprobs import LogprobsProcessor, open_bytes
from octavo.types.engine_output import TokenLogprobs

PIECES = {
    1: b"a",
    2: b" b",
    10: "é".encode()[:1],
    11: "é".encode()[1:],
    20: "😀".encode()[:1],
    21: "😀".encode()[1:3],
    22: "😀".encode()[3:],
    30: b"x" + "é".encode()[:1],
    40: b"",
}


class Pieces:
    def token_bytes(self, token_id):
        return PIECES[token_id]


def decoded(processor):
    return ["|".join(p[t].decoded_token for t in p) for p in processor.logprobs]


def one(*tokens, rank=1):
    return TokenLogprobs(list(tokens), [-0.5 - i for i in range(len(tokens))], rank)


def test_the_sampled_token_comes_first_and_duplicates_merge():
    processor = LogprobsProcessor(Pieces(), [])
    processor.add([TokenLogprobs([1, 2, 1], [-2.0, -0.1, -2.0], 2)])
    (position,) = processor.logprobs
    assert list(position) == [1, 2]
    assert position[1].rank == 2
    assert position[2].rank == 1
    assert processor.cumulative == -2.0


def test_ranks_of_the_top_tokens_count_from_one():
    processor = LogprobsProcessor(Pieces(), [])
    processor.add([TokenLogprobs([1, 2, 40], [-9.0, -0.1, -0.2], 77)])
    assert {t: p.rank for t, p in processor.logprobs[0].items()} == {1: 77, 2: 1, 40: 2}


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([1, 10, 11, 2], ["a", "", "é", " b"]),
        ([20, 21, 22], ["", "", "😀"]),
        ([30, 11], ["x", "é"]),
        ([10, 1], ["", "a"]),
        ([11], ["�"]),
        ([40, 1], ["", "a"]),
        ([20, 40, 21, 22], ["", "", "", "😀"]),
    ],
)
def test_a_character_is_read_at_the_token_that_completes_it(tokens, expected):
    processor = LogprobsProcessor(Pieces(), [])
    processor.add([one(token) for token in tokens])
    assert decoded(processor) == expected


def test_alternatives_are_read_in_the_context_of_the_text_before():
    processor = LogprobsProcessor(Pieces(), [])
    processor.add([one(10), one(1, 11, 2)])
    assert decoded(processor)[1] == "a|é| b"


def test_the_prompt_is_context():
    processor = LogprobsProcessor(Pieces(), [1, 20, 21])
    processor.add([one(22)])
    assert decoded(processor) == ["😀"]


def test_prompt_positions_begin_with_none_and_come_in_chunks():
    for first in ([], [None]):
        processor = LogprobsProcessor(Pieces(), [10, 11, 1])
        processor.add_prompt([*first, one(11)])
        processor.add_prompt([one(1, 2)])
        none, second, third = processor.finish_prompt()
        assert none is None
        assert second[11].decoded_token == "é"
        assert third[1].decoded_token == "a"


def test_a_prompt_of_one_token_has_one_empty_position():
    assert LogprobsProcessor(Pieces(), [1]).finish_prompt() == [None]


def test_truncating_restores_the_sum():
    processor = LogprobsProcessor(Pieces(), [])
    processor.add([TokenLogprobs([1], [value], 1) for value in (-0.1, -0.2, -0.3)])
    before = LogprobsProcessor(Pieces(), [])
    before.add([TokenLogprobs([1], [value], 1) for value in (-0.1, -0.2)])
    processor.truncate(2)
    assert len(processor.logprobs) == 2
    assert processor.cumulative == before.cumulative
    processor.truncate(5)
    assert len(processor.logprobs) == 2


def test_positions_that_were_taken_are_not_kept():
    processor = LogprobsProcessor(Pieces(), [])
    values = (-0.1, -0.2, -0.3, -0.4, -0.5)
    entries = [TokenLogprobs([1], [value], 1) for value in values]
    processor.add(entries[:3])
    assert [p[1].logprob for p in processor.take(2)] == [-0.1, -0.2]
    assert [p[1].logprob for p in processor.logprobs] == [-0.3]
    processor.add(entries[3:])
    processor.truncate(4)
    assert [p[1].logprob for p in processor.take(2)] == [-0.3, -0.4]
    assert processor.take(0) == processor.logprobs == []
    processor.truncate(1)
    assert processor.cumulative == -0.1


def test_without_a_tokenizer_there_is_no_text():
    processor = LogprobsProcessor(None, [1])
    processor.add([one(1, 2)])
    assert {p.decoded_token for p in processor.logprobs[0].values()} == {None}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", b""),
        (b"abc", b""),
        ("é".encode(), b""),
        (b"a\xc3", b"\xc3"),
        (b"a\xe4\xb8", b"\xe4\xb8"),
        (b"\xf0\x9f\x98", b"\xf0\x9f\x98"),
        ("😀".encode(), b""),
        (b"\x80\x80\x80\x80", b""),
        (b"\x98\x80", b""),
    ],
)
def test_open_bytes(data, expected):
    assert open_bytes(data) == expected
