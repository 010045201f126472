"""Texts and pairs cut to a length, with their special tokens in place."""

import pytest

from octavo.checkpoints.locate import find_model
from octavo.config.pooler import PairTemplate
from octavo.engine.pooling_tokens import PoolingTokens
from octavo.tokenizers.tokenizer import load_tokenizer
from octavo.types.errors import RequestError
from support.tiny_poolers import save_tokenizer

CLS, SEP, FIRST = 2, 3, 6  # FIRST: the id of "w0"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    save_tokenizer(folder)
    (folder / "config.json").write_text("{}")
    return load_tokenizer(find_model(str(folder)))


@pytest.fixture
def tokens(tokenizer):
    return PoolingTokens(tokenizer, 10, lower_case=False)


def words(*numbers):
    return " ".join(f"w{number}" for number in numbers)


def ids(*numbers):
    return [FIRST + number for number in numbers]


def test_a_text(tokens):
    assert tokens.text(words(1, 2)).token_ids == [CLS, *ids(1, 2), SEP]
    assert tokens.text(words(1, 2), add_special_tokens=False).token_ids == ids(1, 2)
    assert tokens.text("").token_ids == [CLS, SEP]
    assert len(tokens.text(words(*range(20))).token_ids) == 22  # refused by whoever runs it


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (10, [CLS, *ids(*range(8)), SEP]),
        (-1, [CLS, *ids(*range(8)), SEP]),
        (3, [CLS, *ids(0), SEP]),
        (2, [CLS, SEP]),
        (1, [CLS]),
    ],
)
def test_a_text_loses_its_end(tokens, keep, expected):
    assert tokens.text(words(*range(20)), keep=keep).token_ids == expected


def test_a_text_that_fits_is_whole(tokens):
    assert tokens.text(words(1), keep=-1).token_ids == [CLS, *ids(1), SEP]


def test_token_ids_lose_their_end(tokens):
    assert tokens.ids([5, 6, 7]).token_ids == [5, 6, 7]
    assert tokens.ids([5, 6, 7], keep=2).token_ids == [5, 6]


def test_a_pair(tokens):
    pair = tokens.pair(words(1, 2), words(3))
    assert pair.token_ids == [CLS, *ids(1, 2), SEP, *ids(3), SEP]
    assert pair.second_at == 4


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [(2, 20, (2, 5)), (20, 2, (5, 2)), (20, 20, (3, 4)), (3, 4, (3, 4)), (20, 0, (7, 0))],
)
def test_of_a_pair_the_longer_text_loses_its_end_first(tokens, first, second, kept):
    pair = tokens.pair(words(*range(first)), words(*range(second)), keep=-1)
    begin, end = ids(*range(kept[0])), ids(*range(kept[1]))
    assert pair.token_ids == [CLS, *begin, SEP, *end, SEP]
    assert len(pair.token_ids) <= 10


def test_a_pair_in_a_template(tokenizer):
    template = PairTemplate("w1\nw2 ", " w3 ", " w4 w5")
    tokens = PoolingTokens(tokenizer, 12, lower_case=False, template=template)
    pair = tokens.pair("w10", "w20 w21")
    assert pair.token_ids == [CLS, *ids(1, 2, 10, 3, 20, 21, 4, 5), SEP]
    assert pair.second_at is None
    long = tokens.pair("w10", words(*range(20, 40)), keep=-1)
    assert long.token_ids == [CLS, *ids(1, 2, 10, 3, 20, 21, 22, 23, 4, 5), SEP]
    assert tokens.pair("w10", "w20", keep=4).token_ids == [CLS, *ids(4, 5), SEP]
    assert len(tokens.pair("w10", words(*range(20, 40))).token_ids) == 28  # refused by the engine
    already = tokens.pair("w1\nw9 w10", "w20 w4")
    assert already.token_ids == [CLS, *ids(1, 9, 10), SEP, *ids(20, 4), SEP]
    with pytest.raises(RequestError, match="surrogate"):
        tokens.pair("a", "\ud800")


def test_lower_case(tokenizer):
    tokens = PoolingTokens(tokenizer, 10, lower_case=True)
    assert tokens.text("W1 W2").token_ids == [CLS, *ids(1, 2), SEP]
    assert tokens.pair("W1", "w2").token_ids == [CLS, *ids(1), SEP, *ids(2), SEP]


def test_faults(tokens, tokenizer):
    with pytest.raises(RequestError, match="truncate_prompt_tokens=11 is above"):
        tokens.text("w1", keep=11)
    with pytest.raises(RequestError, match="at most 640 are tokenized") as caught:
        tokens.text("x" * 641, param="input")
    assert caught.value.param == "input"
    assert len(tokens.text("w1 " * 400, keep=-1).token_ids) == 10
    with pytest.raises(RequestError, match="surrogate"):
        tokens.text("\ud800")
    with pytest.raises(RequestError, match="surrogate"):
        tokens.pair("a", "\ud800")
    with pytest.raises(RequestError, match="no tokenizer"):
        PoolingTokens(None, 10, lower_case=False).text("w1")
