"""Rotary settings: the scaling variants, what each needs, and how far it lengthens a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.config import hf
from octavo.types.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class RopeKind:
    """A rotary scaling: the entries it needs, and whether it lengthens the model's limit.

    `lengthens` is "" (max_position_embeddings already counts it), "factor" (times factor) or
    "original" (original_max_position_embeddings times factor).
    """

    required: tuple[str, ...] = ()  # numbers
    lists: tuple[str, ...] = ()  # lists of numbers
    lengthens: str = ""


# As in transformers' modeling_rope_utils.
ROPE_KINDS = {
    "linear": RopeKind(required=("factor",), lengthens="factor"),
    "dynamic": RopeKind(required=("factor",), lengthens="factor"),
    "yarn": RopeKind(required=("factor",), lengthens="original"),
    "llama3": RopeKind(
        required=(
            "factor",
            "low_freq_factor",
            "high_freq_factor",
            "original_max_position_embeddings",
        )
    ),
    "longrope": RopeKind(lists=("short_factor", "long_factor")),
}
_OTHER_NAMES = {"su": "longrope"}


@dataclass(frozen=True, kw_only=True)
class Rope:
    """How positions become angles: `scaling` is None or has "rope_type", a key of ROPE_KINDS."""

    theta: float  # base wavelength
    scaling: dict[str, Any] | None = None
    partial: float = 1.0  # share of a head that is rotated

    def lengthened(self, max_position_embeddings: int) -> int:
        """The longest sequence, given the config's limit."""
        if self.scaling is None:
            return max_position_embeddings
        lengthens = ROPE_KINDS[self.scaling["rope_type"]].lengthens
        if not lengthens:
            return max_position_embeddings
        base = max_position_embeddings
        if lengthens == "original":
            base = self.scaling.get("original_max_position_embeddings") or base
        return int(base * self.scaling["factor"])


def read_rope(
    hf_config: Mapping[str, Any],
    default_theta: float,
    default_partial: float = 1.0,
    layer_type: str | None = None,
) -> Rope:
    """The settings of a config, or of one kind of its layers.

    Raises ConfigError for a kind that is not in ROPE_KINDS or lacks an entry.
    """
    theta, scaling = hf.rope_parameters(hf_config, default_theta, layer_type)
    partial = hf_config.get("partial_rotary_factor")
    if scaling is not None and "partial_rotary_factor" in scaling:
        scaling = dict(scaling)
        partial = scaling.pop("partial_rotary_factor")
        if scaling == {"rope_type": "default"}:
            scaling = None
    if partial is None:
        partial = default_partial
    if not isinstance(partial, int | float) or not 0 < partial <= 1:
        raise ConfigError(
            f"partial_rotary_factor={partial!r} in the model's config: expected a number above 0, "
            "at most 1"
        )
    original = hf_config.get("original_max_position_embeddings")
    if scaling is not None and original is not None:
        scaling = {"original_max_position_embeddings": original, **scaling}
    return Rope(theta=theta, scaling=_check(scaling), partial=float(partial))


def _check(scaling: dict[str, Any] | None) -> dict[str, Any] | None:
    if scaling is None:
        return None
    kind = _OTHER_NAMES.get(scaling["rope_type"], scaling["rope_type"])
    if kind not in ROPE_KINDS:
        raise ConfigError(
            f"rope_type={kind!r} in the model's config is not supported; there are: default, "
            f"{', '.join(ROPE_KINDS)}"
        )
    for key in ROPE_KINDS[kind].required:
        if not isinstance(scaling.get(key), int | float):
            raise ConfigError(f"rope_type={kind!r} in the model's config needs {key!r}")
    for key in ROPE_KINDS[kind].lists:
        if not _numbers(scaling.get(key)):
            raise ConfigError(
                f"rope_type={kind!r} in the model's config needs {key!r}, a list of numbers"
            )
    return {**scaling, "rope_type": kind}


def _numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(v, int | float) for v in value)
