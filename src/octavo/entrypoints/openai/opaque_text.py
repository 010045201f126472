"""Text in the form of an opaque value, for clients that carry it back without reading it."""

from __future__ import annotations

import base64
import binascii
import hashlib

_MARK = "octavo1."


def pack(text: str) -> str:
    """The text as one word. It is encoded, not encrypted: it hides nothing from its owner."""
    return _MARK + base64.urlsafe_b64encode(text.encode()).decode()


def unpack(value: object) -> str | None:
    """The text in a value that `pack` made; None for any other value."""
    if not isinstance(value, str) or not value.startswith(_MARK):
        return None
    try:
        data = value[len(_MARK) :].encode()
        return base64.b64decode(data, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def signature(text: str) -> str:
    """A word that is the same for the same text."""
    digest = hashlib.blake2b(text.encode(), digest_size=24).digest()
    return base64.urlsafe_b64encode(digest).decode()
