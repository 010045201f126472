"""Read Hugging Face configs of every age as one form."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from octavo.types.errors import ConfigError


def merge(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `base` in which the entries of `overrides` replace, nested mappings entry-wise."""
    merged = copy.deepcopy(dict(base))
    for key, value in overrides.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            merged[key] = merge(old, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def checkpoint_dtype(hf_config: Mapping[str, Any]) -> str:
    """The dtype the checkpoint says it was saved in ("float32" when it does not say)."""
    dtype = hf_config.get("dtype") or hf_config.get("torch_dtype") or "float32"
    return str(dtype).removeprefix("torch.")


def rope_parameters(
    hf_config: Mapping[str, Any], default_theta: float, layer_type: str | None = None
) -> tuple[float, dict[str, Any] | None]:
    """(theta, scaling): scaling is None for plain rotary embeddings, else has "rope_type".

    transformers 5 writes `rope_parameters`, for some models one entry per layer type, of which
    `layer_type` is taken; older files write `rope_theta` and `rope_scaling`, whose kind is called
    `type` or `rope_type`. A `partial_rotary_factor` among the parameters is left in the scaling.
    """
    newer = dict(hf_config.get("rope_parameters") or {})
    if any(isinstance(value, Mapping) for value in newer.values()):
        if layer_type is None:
            raise ConfigError(
                "rope_parameters has one entry per layer type; the layers of this architecture "
                "rotate alike"
            )
        newer = dict(newer.get(layer_type) or {})
    parameters = newer | dict(hf_config.get("rope_scaling") or {})
    theta = parameters.pop("rope_theta", None) or hf_config.get("rope_theta") or default_theta
    older_kind = parameters.pop("type", None)
    kind = parameters.pop("rope_type", None) or older_kind or "default"
    if kind == "default":
        partial = parameters.get("partial_rotary_factor")
        kept = None if partial is None else {"rope_type": kind, "partial_rotary_factor": partial}
        return float(theta), kept
    return float(theta), {"rope_type": kind, **parameters}


def token_ids(value: Any, field: str) -> tuple[int, ...]:
    """The ids of an `eos_token_id`-like entry: None, one id or a list of ids."""
    if value is None:
        return ()
    ids = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
        raise ConfigError(f"{field}={value!r} in the model's config: expected token ids")
    return tuple(ids)
