"""What bytes a vocabulary entry stands for, by the kind of decoder the tokenizer has."""

from __future__ import annotations

import enum
import json
import re
from typing import Any

import tokenizers

SPACE = "\u2581"  # how SentencePiece writes a space
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class DecoderKind(enum.Enum):
    """How token texts become text."""

    BYTE_LEVEL = "byte-level"  # each letter of a token is a byte (GPT-2's table)
    BYTE_FALLBACK = "byte-fallback"  # "▁" is a space, <0xE4> is a byte (SentencePiece BPE)
    OTHER = "other"


_FALLBACK_STEPS: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_STRIP_STEP: dict[str, Any] = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def decoder_kind(backend: tokenizers.Tokenizer) -> tuple[DecoderKind, bool]:
    """The kind of a tokenizer's decoder, and whether it strips one leading space of the text."""
    if backend.decoder is None:
        return DecoderKind.OTHER, False
    state = json.loads(backend.decoder.__getstate__())
    if state["type"] == "ByteLevel":
        return DecoderKind.BYTE_LEVEL, False
    steps = state.get("decoders", [])
    if steps[:3] == _FALLBACK_STEPS and steps[3:] in ([], [_STRIP_STEP]):
        return DecoderKind.BYTE_FALLBACK, len(steps) == 4
    return DecoderKind.OTHER, False


def token_to_bytes(token: str, kind: DecoderKind) -> bytes:
    """The bytes of a vocabulary entry, as its decoder would write it within a text."""
    if kind is DecoderKind.BYTE_LEVEL:
        try:
            return bytes([_BYTE_OF_LETTER[letter] for letter in token])
        except KeyError:  # an entry that was never byte-encoded is its own text
            return token.encode()
    match = BYTE_TOKEN.fullmatch(token)
    if kind is DecoderKind.BYTE_FALLBACK and match is not None:
        return bytes([int(match[1], 16)])
    return token.replace(SPACE, " ").encode()


def _byte_letters() -> dict[str, int]:
    """GPT-2's printable letter of each byte: itself if visible, else the next from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {
        chr(0x100 + rank): byte for rank, byte in enumerate(hidden)
    }


_BYTE_OF_LETTER = _byte_letters()
