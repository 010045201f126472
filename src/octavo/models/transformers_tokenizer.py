"""tokenizer.json from the code of a model's own tokenizer, run by transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tokenizers
from transformers import AutoTokenizer
from transformers.convert_slow_tokenizer import convert_slow_tokenizer

from octavo.types.errors import CheckpointError

# Texts on which a converted tokenizer must agree with the one it is made of.
_TRIALS = (
    "Hello, world! It's 2026.",
    "  two  spaces\n\n\ttabs and\r\nlines ",
    "def f(x): return x**2 # 12345 6.78e-9",
    "Grüße aus Köln, naïve café — “quotes”…",
    "Привет, мир. こんにちは世界。 你好,世界! مرحبا 안녕하세요",
    "emoji 👩‍👩‍👧 🇩🇪 e\u0301 \u200b",
)


def tokenizer_json(folder: Path) -> str:
    """The text of a tokenizer.json that does what the tokenizer in `folder` does; runs its code.

    Raises CheckpointError where the code fails, or is of a kind that no tokenizer.json describes.
    """
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=True)
    # Whatever the code of others raises.
    except Exception as error:
        raise CheckpointError(
            f"the tokenizer's own code in {folder} can't be used: {type(error).__name__}: {error}; "
            "name another model's with --tokenizer, or send token ids with --skip-tokenizer-init"
        ) from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if isinstance(backend, tokenizers.Tokenizer):
        return backend.to_str()
    return _converted(tokenizer, folder).to_str()


def _converted(tokenizer: Any, folder: Path) -> tokenizers.Tokenizer:
    """A tokenizer in Python as one of the `tokenizers` package, tried out on some texts."""
    name = type(tokenizer).__name__
    remedy = "name another model's with --tokenizer, or send token ids with --skip-tokenizer-init"
    try:
        backend: tokenizers.Tokenizer = convert_slow_tokenizer(tokenizer)
        for text in _TRIALS:
            ours = backend.encode(text, add_special_tokens=False).ids
            if ours != tokenizer.encode(text, add_special_tokens=False):
                raise ValueError(f"its ids for {text!r} would be others")
    except Exception as error:
        raise CheckpointError(
            f"{name} in {folder} is a tokenizer in Python that can't be made into a "
            f"tokenizer.json ({error}); {remedy}"
        ) from error
    return backend
