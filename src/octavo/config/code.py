"""Code that comes with a model, as auto_map names it: what needs it, and the word to allow it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.types.errors import ConfigError

# Keys of auto_map: classes of transformers that code stands in for.
CONFIG = "AutoConfig"
CAUSAL_LM = "AutoModelForCausalLM"


def code_reference(hf_config: Mapping[str, Any], key: str) -> str | None:
    """The "module.Class" that config.json's auto_map gives for `key`, or None."""
    named = hf_config.get("auto_map")
    reference = named.get(key) if isinstance(named, Mapping) else None
    return reference if isinstance(reference, str) else None


def needs_code(hf_config: Mapping[str, Any], reference: str) -> ConfigError:
    """The error for a model whose code may not be run."""
    names = ", ".join(map(str, hf_config.get("architectures") or ())) or "the model"
    return ConfigError(
        f"{names} is defined by code that comes with it ({reference}), which is not run unless "
        "that is asked for: read it, then add --trust-remote-code"
    )
