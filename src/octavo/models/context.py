"""ModelContext: everything a model is built from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.config.architectures import ModelArch
from octavo.layers.context import LayerContext


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelContext(LayerContext):
    """A LayerContext with the model's shape; plug-in models may read `hf_config` for more."""

    arch: ModelArch
    max_model_len: int  # tokens; sizes the rotary tables
    hf_config: dict[str, Any]
    code: Path | None = None  # the folder whose Python files may be run
