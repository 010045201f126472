"""tokenizer.json from the vocabulary that a GGUF file carries."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from octavo.checkpoints.gguf_file import GGUFFile
from octavo.checkpoints.gguf_text_encoders import SPACE, pair_ends, unigram, word_piece
from octavo.checkpoints.pre_tokenizers import PRE_TOKENIZERS
from octavo.types.errors import CheckpointError


class TokenType(enum.IntEnum):
    """tokenizer.ggml.token_type, which is SentencePiece's piece type."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_SPECIAL = (TokenType.UNKNOWN, TokenType.CONTROL)
_ADDED = (*_SPECIAL, TokenType.USER_DEFINED)


def tokenizer_json(file: GGUFFile) -> str:
    """The text of a tokenizer.json that encodes as the model was trained.

    Kinds: "gpt2" is byte-level BPE with the pre-tokenizer rule named by tokenizer.ggml.pre;
    "llama" is SentencePiece BPE with scores and byte fallback, "t5" its unigram model; "bert" is
    WordPiece. Raises CheckpointError for other
    kinds, an unknown rule, or a vocabulary that is missing.
    """
    kind = file.get("tokenizer.ggml.model")
    tokens: list[str] = file.get("tokenizer.ggml.tokens") or []
    if not tokens:
        raise CheckpointError(
            f"{file.path} carries no vocabulary (tokenizer.ggml.tokens); name a model that has "
            "a tokenizer.json with --tokenizer"
        )
    types = file.get("tokenizer.ggml.token_type") or [TokenType.NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise CheckpointError(f"{file.path} has {len(tokens)} tokens and {len(types)} token types")
    if kind == "gpt2":
        parts = _byte_level(file, tokens, types)
        if file.get("general.architecture") == "bert":
            parts["post_processor"] = pair_ends(file, tokens)
    elif kind == "llama":
        parts = _sentencepiece(file, tokens, types)
    elif kind == "bert":
        parts = word_piece(file, tokens, types)
        tokens = [token.removeprefix(SPACE) for token in tokens]
    elif kind == "t5":
        parts = unigram(file, tokens)
    else:
        raise CheckpointError(
            f"{file.path} has the tokenizer kind {kind!r}; octavo builds bert, gpt2, llama, t5: "
            "name a model that has a tokenizer.json with --tokenizer"
        )
    return whole_tokenizer(tokens, types, parts)


def whole_tokenizer(tokens: list[str], types: list[int], parts: dict[str, Any]) -> str:
    """The text of a tokenizer.json of these parts, in which some kinds of tokens are added ones."""
    added = [
        {
            "id": token_id,
            "content": tokens[token_id],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind in _SPECIAL,
        }
        for token_id, kind in enumerate(types)
        if kind in _ADDED and tokens[token_id]
    ]
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **parts}
    return msgspec.json.encode(whole).decode()


def _byte_level(file: GGUFFile, tokens: list[str], types: list[int]) -> dict[str, Any]:
    name = file.get("tokenizer.ggml.pre", "default")
    rule = PRE_TOKENIZERS.get(name)
    if rule is None:
        raise CheckpointError(
            f"{file.path} has the pre-tokenizer rule tokenizer.ggml.pre={name!r}, unknown here; "
            f"known: {', '.join(sorted(PRE_TOKENIZERS))}. Name a model that has a tokenizer.json "
            "with --tokenizer"
        )
    merges = [merge.split(" ", 1) for merge in file.get("tokenizer.ggml.merges") or []]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    return {
        "normalizer": {"type": "NFC"} if rule.nfc else None,
        "pre_tokenizer": rule.to_json(),
        "post_processor": None,
        "decoder": byte_level | {"use_regex": False},
        "model": {
            **_bpe(tokens, types, merges),
            "ignore_merges": rule.ignore_merges,
        },
    }


def _sentencepiece(file: GGUFFile, tokens: list[str], types: list[int]) -> dict[str, Any]:
    scores = file.get("tokenizer.ggml.scores") or []
    if len(scores) != len(tokens):
        raise CheckpointError(f"{file.path} has {len(tokens)} tokens and {len(scores)} scores")
    return sentencepiece_bpe(
        tokens,
        types,
        scores,
        prefix=bool(file.get("tokenizer.ggml.add_space_prefix", True)),
        unknown=file.get("tokenizer.ggml.unknown_token_id", 0),
    )


def sentencepiece_bpe(
    tokens: list[str], types: list[int], scores: list[float], *, prefix: bool, unknown: int
) -> dict[str, Any]:
    """Parts of a tokenizer.json; `prefix`: every text begins with a space, `unknown`: an id."""
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    normalizers = [{"type": "Prepend", "prepend": SPACE}, replace] if prefix else [replace]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            **_bpe(tokens, types, _merges_by_score(tokens, types, scores)),
            "unk_token": tokens[unknown],
            "fuse_unk": True,
            "byte_fallback": True,
        },
    }


def _bpe(tokens: list[str], types: list[int], merges: list[list[str]]) -> dict[str, Any]:
    vocab = {
        token: token_id
        for token_id, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind != TokenType.UNUSED
    }
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "vocab": vocab,
        "merges": merges,
    }


def _merges_by_score(tokens: list[str], types: list[int], scores: list[float]) -> list[list[str]]:
    """Merge rules in SentencePiece's order: the pair whose union scores best is merged first.

    Every way to split a token into two tokens is a rule of that token's score; among equals the
    left part with the lower id goes first.
    """
    ids = {
        token: token_id
        for token_id, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind == TokenType.NORMAL
    }
    ranked = [
        (-scores[token_id], ids[token[:cut]], ids[token[cut:]], token[:cut], token[cut:])
        for token, token_id in ids.items()
        for cut in range(1, len(token))
        if token[:cut] in ids and token[cut:] in ids
    ]
    ranked.sort()
    return [[left, right] for *_, left, right in ranked]
