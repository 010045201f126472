"""Tokenizers built from GGUF vocabularies encode like the tokenizers they came from."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.checkpoints.locate import find_model
from octavo.checkpoints.pre_tokenizers import PRE_TOKENIZERS
from octavo.tokenizers.tokenizer import Tokenizer, load_tokenizer
from octavo.types.errors import CheckpointError
from support.tiny_gguf import write_gguf
from support.tiny_tokenizer import SPECIALS, byte_fallback_backend, byte_level_backend


@pytest.fixture(scope="module")
def smollm() -> Tokenizer:
    return load_tokenizer(find_model("smollm2-135m-instruct"))


def tokenizer_of(path, **metadata):
    metadata = {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}
    return load_tokenizer(find_model(str(write_gguf(path / "m.gguf", metadata=metadata))))


def vocabulary(backend):
    tokens = [backend.id_to_token(i) for i in range(backend.get_vocab_size())]
    types = [3 if token in SPECIALS else 6 if token.startswith("<0x") else 1 for token in tokens]
    return {"tokens": tokens, "token_type": types}


def test_smollm2_splits_digits(smollm):
    ids = smollm.encode("12345")
    assert smollm.convert_ids_to_tokens(ids) == list("12345")
    tokens = smollm.convert_ids_to_tokens(smollm.encode("In 2024, x=10"))
    assert tokens == ["In", "Ġ", "2", "0", "2", "4", ",", "Ġx", "=", "1", "0"]


def test_smollm2_chat_tokens(smollm):
    ids = smollm.encode("<|im_start|>user\nhi<|im_end|>\n")
    assert smollm.convert_ids_to_tokens(ids) == [
        "<|im_start|>",
        "user",
        "Ċ",
        "hi",
        "<|im_end|>",
        "Ċ",
    ]
    assert (smollm.bos_token_id, smollm.eos_token_id) == (1, 2)
    assert smollm.all_special_ids == frozenset(range(17))
    assert smollm.vocab_size == smollm.max_token_id + 1 == 49152
    assert smollm.encode("hi") == smollm.encode("hi", add_special_tokens=False)


@settings(max_examples=50)
@given(st.text(st.characters(min_codepoint=32, max_codepoint=0xFFFF, codec="utf-8"), max_size=60))
def test_smollm2_text_survives(smollm, text):
    """Its vocabulary lacks a few control bytes and the lead bytes of the higher planes."""
    ids = smollm.encode(text, add_special_tokens=False)
    assert smollm.decode(ids, skip_special_tokens=False) == text
    assert b"".join(map(smollm.token_bytes, ids)) == text.encode()


def test_byte_level(tmp_path):
    backend = byte_level_backend()
    model = json.loads(backend.to_str())["model"]
    merges = [" ".join(merge) for merge in model["merges"]]
    tokenizer = tokenizer_of(tmp_path, pre="gpt-2", merges=merges, **vocabulary(backend))
    for text in ("the quick brown fox's 123  jumps\n\nover", "你好 👩‍👩‍👧 <|im_end|>é"):
        assert tokenizer.encode(text) == backend.encode(text).ids
        assert tokenizer.decode(tokenizer.encode(text), False) == text


def test_sentencepiece(tmp_path):
    """Merges follow the scores, which are SentencePiece's ranks."""
    backend = byte_fallback_backend()
    order = ["he", "th", "the", "▁the", "▁a"]
    vocab = vocabulary(backend)
    scores = [-float(order.index(t)) if t in order else -100.0 for t in vocab["tokens"]]
    values = {"model": "llama", "scores": scores, "unknown_token_id": 0, "merges": None} | vocab
    tokenizer = tokenizer_of(tmp_path, **values)
    for text in ("the a the", "other\n你世", "  the", "a</s>the"):
        assert tokenizer.encode(text, add_special_tokens=False) == backend.encode(text).ids
        assert tokenizer.decode(tokenizer.encode(text)) == backend.decode(backend.encode(text).ids)
    assert tokenizer.encode("a")[0] == tokenizer.bos_token_id
    assert tokenizer.strips_leading_space
    bare = tokenizer_of(tmp_path, add_space_prefix=False, add_bos_token=False, **values)
    assert bare.convert_ids_to_tokens(bare.encode("the")) == ["the"]
    assert not bare.strips_leading_space


PRE_CASES = {
    "smollm": ["ab", "Ġ", "1", "2", "3", "4", "'s", "Ġ", "Ċ", "!!"],
    "gpt-2": ["ab", "Ġ1234", "'s", "Ġ", "Ċ", "!!"],
    "llama-bpe": ["ab", "Ġ", "123", "4", "'s", "ĠĊ", "!!"],
    "qwen2": ["ab", "Ġ", "1", "2", "3", "4", "'s", "ĠĊ", "!!"],
    "tekken": ["ab", "Ġ", "1", "2", "3", "4", "'s", "ĠĊ", "!!"],
    "gpt-4o": ["ab", "Ġ", "123", "4", "'s", "ĠĊ", "!!"],
    "deepseek-v3": ["ab", "Ġ", "123", "4", "'s", "ĠĊ", "!!"],
    "deepseek-coder": ["ab", "Ġ", "1", "2", "3", "4", "'", "s", "Ġ", "Ċ", "!!"],
}


@pytest.mark.parametrize(("rule", "expected"), PRE_CASES.items())
def test_splitting_rules(tmp_path, rule, expected):
    pre_tokenizer = tokenizer_of(tmp_path, pre=rule).backend.pre_tokenizer
    assert [piece for piece, _ in pre_tokenizer.pre_tokenize_str("ab 1234's \n!!")] == expected


def test_every_rule_compiles(tmp_path):
    for rule in PRE_TOKENIZERS:
        assert tokenizer_of(tmp_path, pre=rule).encode("ABC")


def test_unused_tokens_are_left_out_and_user_defined_are_found(tmp_path):
    tokens = ["<unk>", "<s>", "</s>", "A", "B", "AB", "[PAD6]", "<tool>"]
    types = [3, 3, 3, 1, 1, 1, 5, 4]
    tokenizer = tokenizer_of(tmp_path, tokens=tokens, token_type=types, merges=["A B"])
    assert tokenizer.encode("AB<tool>") == [5, 7]
    assert tokenizer.token_bytes(6) == b""
    assert 7 not in tokenizer.all_special_ids
    assert tokenizer.max_token_id == 7


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"pre": "martian"}, "tokenizer.ggml.pre='martian', unknown here; known: .*smollm"),
        ({"model": "rwkv"}, "kind 'rwkv'; octavo builds bert, gpt2, llama, t5"),
        ({"tokens": None}, "no vocabulary"),
        ({"token_type": [1]}, "40 tokens and 1 token types"),
        ({"model": "llama"}, "40 tokens and 0 scores"),
        ({"merges": ["A Z Z"]}, "can't be read"),
    ],
)
def test_refusals(tmp_path, metadata, message):
    with pytest.raises(CheckpointError, match=message):
        tokenizer_of(tmp_path, **metadata)
