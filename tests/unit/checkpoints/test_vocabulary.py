"""Ids of tokens, from every kind of vocabulary."""

import json

import pytest
from tokenizers import AddedToken, Tokenizer, models

from octavo.checkpoints.vocabulary import token_ids
from octavo.types.errors import CheckpointError

VOCAB = {"no": 0, "yes": 1, "[UNK]": 2}


@pytest.mark.parametrize(
    "model",
    [
        models.BPE(VOCAB, []),
        models.WordPiece(VOCAB, unk_token="[UNK]"),
        models.WordLevel(VOCAB, unk_token="[UNK]"),
        models.Unigram([("no", -1.0), ("yes", -2.0), ("[UNK]", 0.0)], 2, False),
    ],
)
def test_ids(model):
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens([AddedToken("<|im_end|>", special=True)])
    found = token_ids(tokenizer.to_str(), ["yes", "no", "<|im_end|>", "maybe"])
    assert found == {"yes": 1, "no": 0, "<|im_end|>": 3}


@pytest.mark.parametrize("text", ["{", "[]", "{}", json.dumps({"model": {"vocab": 3}})])
def test_no_vocabulary(text):
    with pytest.raises(CheckpointError, match="no vocabulary"):
        token_ids(text, ["yes"])
