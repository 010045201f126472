"""Parts of tokenizer.json for GGUF files of text encoders: WordPiece, Unigram, and their ends."""

from __future__ import annotations

import base64
from typing import Any

from octavo.checkpoints.gguf_file import GGUFFile
from octavo.types.errors import CheckpointError

SPACE = "\u2581"  # before the first piece of a word
_CONTROL = 3  # TokenType.CONTROL
_UNUSED = 5  # TokenType.UNUSED
_MAX_WORD = 100  # characters; longer words are unknown


def word_piece(file: GGUFFile, tokens: list[str], types: list[int]) -> dict[str, Any]:
    """BERT's tokenizer. Files mark the beginnings of words, where WordPiece marks the rest.

    Whether letters are brought to lower case is told by newer files; of others the vocabulary
    tells it, which then has no capitals.
    """
    vocab = {
        _word_piece(token, kind): token_id
        for token_id, (token, kind) in enumerate(zip(tokens, types, strict=True))
    }
    lower = file.get("tokenizer.ggml.normalizer.lowercase")
    if lower is None:
        words = (word for word in vocab if not word.startswith("["))
        lower = not any(letter.isupper() for word in words for letter in word)
    unknown = file.get("tokenizer.ggml.unknown_token_id")
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": file.get("tokenizer.ggml.normalizer.strip_accents"),
            "lowercase": bool(lower),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _ends(file, tokens, between=1),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]" if unknown is None else tokens[unknown].removeprefix(SPACE),
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": _MAX_WORD,
            "vocab": vocab,
        },
    }


def unigram(file: GGUFFile, tokens: list[str]) -> dict[str, Any]:
    """SentencePiece's unigram model, as XLM-RoBERTa has it."""
    scores = file.get("tokenizer.ggml.scores") or []
    if len(scores) != len(tokens):
        raise CheckpointError(f"{file.path} has {len(tokens)} tokens and {len(scores)} scores")
    normalizers: list[dict[str, Any]] = []
    charsmap = file.get("tokenizer.ggml.precompiled_charsmap")
    if charsmap:
        text = base64.b64encode(bytes(value & 0xFF for value in charsmap)).decode()
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": text})
    if file.get("tokenizer.ggml.remove_extra_whitespaces", True):
        blanks = {"Regex": " {2,}"}
        normalizers.append({"type": "Replace", "pattern": blanks, "content": " "})
        normalizers.append({"type": "Strip", "strip_left": True, "strip_right": True})
    scheme = "always" if file.get("tokenizer.ggml.add_space_prefix", True) else "never"
    blank = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": blank,
        "post_processor": _ends(file, tokens, between=2),
        "decoder": blank,
        "model": {
            "type": "Unigram",
            "unk_id": file.get("tokenizer.ggml.unknown_token_id", 3),
            "vocab": [[token, score] for token, score in zip(tokens, scores, strict=True)],
            "byte_fallback": False,
        },
    }


def pair_ends(file: GGUFFile, tokens: list[str]) -> dict[str, Any]:
    """The post-processor of RoBERTa, whose vocabulary is like a generator's."""
    return _ends(file, tokens, between=2)


def _word_piece(token: str, kind: int) -> str:
    if kind in (_CONTROL, _UNUSED):
        return token
    return token.removeprefix(SPACE) if token.startswith(SPACE) else f"##{token}"


def _ends(file: GGUFFile, tokens: list[str], *, between: int) -> dict[str, Any]:
    """A token before and one behind every text; `between`: how many separate those of a pair.

    Only BERT, which has one between, tells the second text's tokens apart by their type.
    """
    begin = _special(file, ("cls", "bos"), tokens, ("[CLS]", "<s>"))
    end = _special(file, ("seperator", "eos"), tokens, ("[SEP]", "</s>"))

    def special(token_id: int, kind: int = 0) -> dict[str, Any]:
        return {"SpecialToken": {"id": tokens[token_id], "type_id": kind}}

    def text(name: str, kind: int = 0) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": kind}}

    second = 1 if between == 1 else 0
    return {
        "type": "TemplateProcessing",
        "single": [special(begin), text("A"), special(end)],
        "pair": [
            special(begin),
            text("A"),
            *[special(end)] * between,
            text("B", second),
            special(end, second),
        ],
        "special_tokens": {
            tokens[token_id]: {
                "id": tokens[token_id],
                "ids": [token_id],
                "tokens": [tokens[token_id]],
            }
            for token_id in (begin, end)
        },
    }


def _special(
    file: GGUFFile, keys: tuple[str, ...], tokens: list[str], names: tuple[str, ...]
) -> int:
    for key in keys:
        found = file.get(f"tokenizer.ggml.{key}_token_id")
        if found is not None:
            return int(found)
    for name in names:
        if name in tokens:
            return tokens.index(name)
    raise CheckpointError(
        f"{file.path} does not say which token is put around texts (tokenizer.ggml."
        f"{keys[0]}_token_id); name a model that has a tokenizer.json with --tokenizer"
    )
