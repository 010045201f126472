"""Tokenizers in Python as tokenizer.json: taken over where their ids are the same."""

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from octavo.models import transformers_tokenizer
from octavo.types.errors import CheckpointError


def byte_level():
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return backend


class InPython:
    """A tokenizer without a backend."""

    def __init__(self, shift=0):
        self.shift = shift

    def encode(self, text, add_special_tokens=True):
        assert not add_special_tokens
        return [token + self.shift for token in byte_level().encode(text).ids]


@pytest.fixture
def given(monkeypatch):
    """Makes AutoTokenizer give a tokenizer, and its conversion a byte-level one."""

    def give(tokenizer):
        auto = transformers_tokenizer.AutoTokenizer
        monkeypatch.setattr(auto, "from_pretrained", lambda folder, trust_remote_code: tokenizer)
        monkeypatch.setattr(
            transformers_tokenizer, "convert_slow_tokenizer", lambda tokenizer: byte_level()
        )

    return give


def test_one_that_agrees(given, tmp_path):
    given(InPython())
    assert transformers_tokenizer.tokenizer_json(tmp_path) == byte_level().to_str()


def test_one_that_does_not(given, tmp_path):
    given(InPython(shift=1))
    with pytest.raises(CheckpointError, match=r"InPython in .* .Hello.* would be others"):
        transformers_tokenizer.tokenizer_json(tmp_path)
