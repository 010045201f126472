"""Bodies of /v1/models."""

from __future__ import annotations

import msgspec


class ModelCard(msgspec.Struct, kw_only=True):
    """A name that requests may put into `model`."""

    id: str
    object: str = "model"
    created: int  # seconds since 1970
    owned_by: str = "octavo"
    root: str
    parent: str | None = None
    max_model_len: int  # tokens, prompt and output


class ModelList(msgspec.Struct, kw_only=True):
    """Every name there is."""

    object: str = "list"
    data: list[ModelCard]
