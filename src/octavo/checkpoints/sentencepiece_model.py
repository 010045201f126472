"""tokenizer.json from a SentencePiece model file, read without the sentencepiece package.

The file is a protocol buffer, ModelProto of sentencepiece_model.proto; a few fields are needed.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.checkpoints.gguf_tokenizer import TokenType, sentencepiece_bpe, whole_tokenizer
from octavo.checkpoints.tekken_template import sentencepiece_template
from octavo.types.errors import CheckpointError

PLAIN_NAME = "tokenizer.model"
_MISTRAL_NAME = re.compile(r".*\.model\.v(\d+)(m\d+)?")
_BPE = 2  # TrainerSpec.model_type
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LAST_FIELD = 1 << 29

Field = int | bytes


@dataclass(frozen=True)
class SentencePieceModel:
    """Pieces in the order of their ids, and how a text is prepared for them."""

    path: Path
    tokens: tuple[str, ...]
    types: tuple[int, ...]  # TokenType
    scores: tuple[float, ...]
    charsmap: bytes  # rules that normalize a text; empty: none
    add_prefix: bool  # a text begins with a space
    named: dict[str, str]  # bos_token, eos_token, unk_token, pad_token, as far as there are any

    @property
    def mistral_version(self) -> int | None:
        """The version in the names that Mistral's files have (tokenizer.model.v3)."""
        match = _MISTRAL_NAME.fullmatch(self.path.name)
        return None if match is None else int(match[1])


def find(folder: Path) -> Path | None:
    """The SentencePiece model of a folder, the one of the latest version if there are several."""
    named = [
        (int(match[1]), path)
        for path in folder.glob("*.model.v*")
        if (match := _MISTRAL_NAME.fullmatch(path.name)) is not None
    ]
    if named:
        return max(named)[1]
    path = folder / PLAIN_NAME
    return path if path.is_file() else None


def read(path: Path) -> SentencePieceModel:
    """Raises CheckpointError for a file that is none, or whose model is no BPE."""
    try:
        return _model(path, path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"can't read {path}: {error.strerror or error}") from error
    except (ValueError, IndexError, struct.error) as error:
        raise CheckpointError(f"{path} is no SentencePiece model: {error}") from error


def tokenizer_json(model: SentencePieceModel) -> str:
    """The text of a tokenizer.json with the same ids."""
    tokens, types = list(model.tokens), list(model.types)
    unknown = types.index(TokenType.UNKNOWN) if TokenType.UNKNOWN in types else 0
    parts = sentencepiece_bpe(
        tokens, types, list(model.scores), prefix=model.add_prefix, unknown=unknown
    )
    if model.charsmap:
        text = base64.b64encode(model.charsmap).decode()
        parts["normalizer"]["normalizers"].insert(
            0, {"type": "Precompiled", "precompiled_charsmap": text}
        )
    parts["model"]["byte_fallback"] = TokenType.BYTE in types
    return whole_tokenizer(tokens, types, parts)


def tokenizer_config(model: SentencePieceModel) -> dict[str, Any]:
    """The special tokens, that texts begin with one, and a template where a version has one."""
    config: dict[str, Any] = {**model.named, "add_bos_token": True, "add_eos_token": False}
    version = model.mistral_version
    template = None if version is None else sentencepiece_template(version)
    return config if template is None else config | {"chat_template": template}


def _model(path: Path, data: bytes) -> SentencePieceModel:
    tokens, types, scores = [], [], []
    trainer: dict[int, Field] = {}
    normalizer: dict[int, Field] = {}
    for number, value in _fields(data):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            piece = dict(_fields(value))
            tokens.append(_bytes(piece.get(1, b"")).decode("utf-8"))
            scores.append(struct.unpack("<f", _bytes(piece.get(2, bytes(4))))[0])
            types.append(int(piece.get(3, TokenType.NORMAL)))
        elif number == 2:
            trainer = dict(_fields(value))
        elif number == 3:
            normalizer = dict(_fields(value))
    if not tokens:
        raise ValueError("it holds no pieces")
    if trainer.get(3, 1) != _BPE:
        raise ValueError(
            "its model is no BPE; make a tokenizer.json with transformers' AutoTokenizer and "
            "save_pretrained, or name a model that has one with --tokenizer"
        )
    return SentencePieceModel(
        path,
        tuple(tokens),
        tuple(types),
        tuple(scores),
        charsmap=_bytes(normalizer.get(2, b"")),
        add_prefix=bool(normalizer.get(3, 1)),
        named=_named(trainer, tokens),
    )


def _named(trainer: dict[int, Field], tokens: list[str]) -> dict[str, str]:
    """TrainerSpec's unk_id, bos_id, eos_id, pad_id; -1, for none, is a varint of 64 bits."""
    defaults = {"unk_token": (40, 0), "bos_token": (41, 1), "eos_token": (42, 2)}
    none = 2**64 - 1
    ids = {name: trainer.get(field, default) for name, (field, default) in defaults.items()}
    ids["pad_token"] = trainer.get(43, none)
    return {
        name: tokens[found]
        for name, found in ids.items()
        if isinstance(found, int) and found < len(tokens)
    }


def _bytes(value: Field) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a field is of another type")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, Field]]:
    """(number, value) of a message's fields; floats come as their four bytes."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, kind = key >> 3, key & 7
        if not 0 < number < _LAST_FIELD:
            raise ValueError(f"field {number} is not possible")
        value: Field
        if kind == _VARINT:
            value, position = _varint(data, position)
        else:
            if kind == _BYTES:
                length, position = _varint(data, position)
            elif kind in (_FIXED32, _FIXED64):
                length = 4 if kind == _FIXED32 else 8
            else:
                raise ValueError(f"wire type {kind} is not known")
            end = position + length
            if end > len(data):
                raise ValueError("it ends within a field")
            value, position = data[position:end], end
        yield number, value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a number is too long")
