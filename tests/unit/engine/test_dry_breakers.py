"""DryBreakers: which tokens hold a text, by a search of the whole vocabulary."""

from __future__ import annotations

import pytest

from octavo.engine.dry_breakers import DryBreakers
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.errors import RequestError
from octavo.types.sampling_params import DRY_BREAKERS
from support.tiny_tokenizer import byte_level_backend

VOCAB = 320


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(byte_level_backend(VOCAB))


def _expected(tokenizer: Tokenizer, texts: tuple[str, ...]) -> list[int]:
    found = set()
    for text in texts:
        found.add(tokenizer.encode(text, False)[-1])
        for token in range(tokenizer.max_token_id + 1):
            if text.encode() in tokenizer.token_bytes(token):
                found.add(token)
    return sorted(found)


@pytest.mark.parametrize(
    "texts", [("\n",), DRY_BREAKERS, ("e",), ("th", "the"), ("quick brown",), ("\u4e16",)]
)
def test_the_tokens_that_hold_a_text(tokenizer: Tokenizer, texts: tuple[str, ...]) -> None:
    breakers = DryBreakers(tokenizer, VOCAB)
    assert breakers.token_ids(texts) == _expected(tokenizer, texts)
    assert breakers.token_ids(texts) == _expected(tokenizer, texts)  # remembered


def test_several_tokens_may_hold_a_text_and_none_across_two(tokenizer: Tokenizer) -> None:
    found = DryBreakers(tokenizer, VOCAB).token_ids(["e"])
    assert len(found) > 1
    assert all(b"e" in tokenizer.token_bytes(token) for token in found)


def test_none_stands_for_the_usual_ones(tokenizer: Tokenizer) -> None:
    breakers = DryBreakers(tokenizer, VOCAB)
    assert breakers.token_ids(None) == breakers.token_ids(DRY_BREAKERS)
    assert breakers.token_ids([]) == []
    assert DryBreakers(None, VOCAB).token_ids(None) == []


def test_ids_beyond_the_models_vocabulary_are_left_out(tokenizer: Tokenizer) -> None:
    assert max(DryBreakers(tokenizer, 100).token_ids(["e"])) < 100


def test_half_a_character_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="surrogate"):
        DryBreakers(tokenizer, VOCAB).token_ids(["\ud800"])
