"""Ids of single tokens, looked up in the text of a tokenizer.json."""

from __future__ import annotations

import json
from collections.abc import Collection

from octavo.types.errors import CheckpointError


def token_ids(tokenizer_json: str, tokens: Collection[str]) -> dict[str, int]:
    """Token, as the vocabulary spells it -> id, of those it has. Raises CheckpointError."""
    try:
        content = json.loads(tokenizer_json)
        vocab = content["model"]["vocab"]
        if isinstance(vocab, list):  # Unigram: [token, score] by id
            vocab = {entry[0]: index for index, entry in enumerate(vocab)}
        added = {entry["content"]: entry["id"] for entry in content.get("added_tokens") or ()}
        known = {**vocab, **added}
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise CheckpointError(f"tokenizer.json has no vocabulary: {error}") from error
    return {token: known[token] for token in tokens if token in known}
