"""tokenizer.json from tekken.json, the tokenizer file of Mistral's own code."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from octavo.checkpoints.pre_tokenizers import PreTokenizer
from octavo.checkpoints.tekken_template import chat_template
from octavo.types.errors import CheckpointError

# The first special tokens of files that don't list them; the others have no text of their own.
_SPECIAL = (
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
)


@dataclass(frozen=True)
class Tekken:
    """A vocabulary of byte strings in the order of their merges, after the special tokens."""

    version: int
    pattern: str  # cuts a text before merging
    special: tuple[str, ...]
    tokens: tuple[bytes, ...]


def read(path: Path, content: Mapping[str, Any]) -> Tekken:
    """`content` is that of the tekken.json at `path`; CheckpointError if it is not one."""
    try:
        config = content["config"]
        num_special = int(config["default_num_special_tokens"])
        count = int(config["default_vocab_size"]) - num_special
        entries = content["vocab"][:count]
        tokens = tuple(base64.b64decode(entry["token_bytes"], validate=True) for entry in entries)
        listed = [str(entry["token_str"]) for entry in content.get("special_tokens") or ()]
        version, pattern = int(str(config["version"]).lstrip("v")), str(config["pattern"])
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise CheckpointError(f"{path} is no tekken tokenizer: {error!r}") from error
    special = listed or _SPECIAL
    more = [f"<SPECIAL_{index}>" for index in range(len(special), num_special)]
    return Tekken(version, pattern, (*special[:num_special], *more), tokens)


def tokenizer_json(tekken: Tekken) -> str:
    """The text of a tokenizer.json with the same ids."""
    ranks = {token: rank for rank, token in enumerate(tekken.tokens)}
    first = len(tekken.special)
    texts = [_visible(token) for token in tekken.tokens]
    vocab = {token: token_id for token_id, token in enumerate(tekken.special)}
    vocab |= {text: first + rank for rank, text in enumerate(texts)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    added = [
        {
            "id": token_id,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token_id, token in enumerate(tekken.special)
    ]
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": PreTokenizer((tekken.pattern,)).to_json(),
        "post_processor": None,
        "decoder": byte_level | {"use_regex": False},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": vocab,
            "merges": [[texts[left], texts[right]] for left, right in _merges(ranks)],
        },
    }
    return msgspec.json.encode(whole).decode()


def tokenizer_config(tekken: Tekken) -> dict[str, Any]:
    """The special tokens, that texts begin with one, and the chat template of the version."""
    config: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    config |= {"add_bos_token": True, "add_eos_token": False}
    if "<pad>" in tekken.special:
        config["pad_token"] = "<pad>"
    template = chat_template(tekken.version)
    return config if template is None else config | {"chat_template": template}


def _merges(ranks: Mapping[bytes, int]) -> Iterator[tuple[int, int]]:
    """Every way to make a token of two, tokens of lower rank first."""
    for token in ranks:
        pairs = (
            (ranks[token[:cut]], ranks[token[cut:]])
            for cut in range(1, len(token))
            if token[:cut] in ranks and token[cut:] in ranks
        )
        yield from sorted(pairs)


def _visible(token: bytes) -> str:
    """A token's bytes as the characters that byte-level vocabularies use."""
    return "".join(_CHARACTERS[byte] for byte in token)


def _byte_characters() -> tuple[str, ...]:
    """GPT-2's character of each byte: printable Latin-1 stands for itself, others follow 255."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in plain else next(others)) for byte in range(0x100))


_CHARACTERS = _byte_characters()
