"""Real chat templates over small tokenizers that have the real models' special tokens."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from octavo.tokenizers.tokenizer import Tokenizer

_DATA = Path(__file__).parent / "data" / "npm_templates.json"


@functools.cache
def extracts() -> dict:
    """name -> chat_template, bos_token, eos_token, special, added; see extract_templates.py."""
    return json.loads(_DATA.read_text(encoding="utf-8"))


@functools.cache
def real_tokenizer(name: str) -> Tokenizer:
    """One token a byte, and the model's own special and added tokens."""
    extract = extracts()[name]
    return byte_tokenizer(
        extract["special"],
        extract["added"],
        {key: extract[key] for key in ("bos_token", "eos_token") if extract[key]},
        {"default": extract["chat_template"]} if extract["chat_template"] else {},
    )


def byte_tokenizer(special, added=(), config=None, templates=None) -> Tokenizer:
    """A byte-level tokenizer without merges."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    backend.add_tokens([AddedToken(t, special=False, normalized=False) for t in added])
    return Tokenizer(backend, config or {}, templates)
