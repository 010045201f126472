"""Rotary position embeddings: one table of cosines and sines per setting, every scaling variant.

RoPE is from Su et al. 2021 (arXiv 2104.09864). Angles are computed in float32, as the checkpoints'
authors did: at long positions a more exact angle is a different one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from octavo.types.errors import ConfigError


@dataclass(frozen=True)
class RopeSettings:
    """What a table of angles is made of.

    `scaling` is None or the checkpoint's dictionary, with "rope_type". `max_model_len` is the
    longest sequence that will be run; variants that depend on the length use it.
    """

    rotary_dim: int  # elements of a head that are rotated
    theta: float  # base wavelength
    max_position_embeddings: int  # of the config
    max_model_len: int
    scaling: Mapping[str, Any] | None = None


class RotaryEmbedding(nn.Module):
    """cos_sin[max_model_len, dim]: per position dim/2 cosines, then dim/2 sines, float32."""

    cos_sin: torch.Tensor

    def __init__(self, settings: RopeSettings, device: torch.device, is_neox: bool = True) -> None:
        super().__init__()
        self.dim = settings.rotary_dim
        self.is_neox = is_neox
        self.register_buffer("cos_sin", cos_sin_table(settings).to(device), persistent=False)


class NoRotary(RotaryEmbedding):
    """In the place of a rotary embedding: the angle of every position is 0."""

    def __init__(self, max_model_len: int, device: torch.device) -> None:
        nn.Module.__init__(self)
        self.dim = 2
        self.is_neox = True
        table = torch.tensor([1.0, 0.0], device=device).repeat(max_model_len, 1)
        self.register_buffer("cos_sin", table, persistent=False)


def cos_sin_table(settings: RopeSettings) -> torch.Tensor:
    """The table of a setting, [max_model_len, rotary_dim] float32."""
    inverse, magnitude = inverse_frequencies(settings)
    positions = torch.arange(settings.max_model_len, dtype=torch.float32)
    angles = positions[:, None] * inverse[None, :]
    return torch.cat([angles.cos(), angles.sin()], dim=-1) * magnitude


def inverse_frequencies(settings: RopeSettings) -> tuple[torch.Tensor, float]:
    """(radians per position of each pair, [rotary_dim / 2]; factor on cosines and sines)."""
    if settings.scaling is None:
        return _plain(settings.theta, settings.rotary_dim), 1.0
    kind = settings.scaling["rope_type"]
    if kind not in _VARIANTS:
        raise ConfigError(
            f"rope_type={kind!r} in the model's config is not supported; there are: default, "
            f"{', '.join(_VARIANTS)}"
        )
    return _VARIANTS[kind](settings, settings.scaling)


def _plain(theta: float, dim: int) -> torch.Tensor:
    return 1.0 / (theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))


def _linear(settings: RopeSettings, scaling: Mapping[str, Any]) -> tuple[torch.Tensor, float]:
    """Positions divided by a factor (position interpolation, arXiv 2306.15595)."""
    return _plain(settings.theta, settings.rotary_dim) / scaling["factor"], 1.0


def _dynamic(settings: RopeSettings, scaling: Mapping[str, Any]) -> tuple[torch.Tensor, float]:
    """A longer base wavelength for sequences beyond the trained length ("NTK-aware").

    The original stretches with the current length, which would rotate keys in the cache anew;
    here the stretch is that of the longest sequence this engine admits.
    """
    dim, factor, trained = settings.rotary_dim, scaling["factor"], settings.max_position_embeddings
    length = max(settings.max_model_len, trained)
    stretch = (factor * length / trained - (factor - 1)) ** (dim / (dim - 2))
    return _plain(settings.theta * stretch, dim), 1.0


def _llama3(settings: RopeSettings, scaling: Mapping[str, Any]) -> tuple[torch.Tensor, float]:
    """Long wavelengths divided by a factor, short ones kept, a ramp between (Llama 3.1)."""
    inverse = _plain(settings.theta, settings.rotary_dim)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * inverse / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return inverse * ((1 - kept) / scaling["factor"] + kept), 1.0


def _yarn(settings: RopeSettings, scaling: Mapping[str, Any]) -> tuple[torch.Tensor, float]:
    """Interpolation by parts and a larger magnitude (YaRN, arXiv 2309.00071)."""
    dim, theta = settings.rotary_dim, settings.theta
    trained = scaling.get("original_max_position_embeddings") or settings.max_position_embeddings
    factor = scaling.get("factor") or settings.max_position_embeddings / trained

    def pair_turning(turns: float) -> float:
        """Index of the pair that makes so many turns over the trained length."""
        return dim * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = pair_turning(scaling.get("beta_fast") or 32)
    high = pair_turning(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    width = high - low if high != low else 0.001
    slow = ((torch.arange(dim // 2, dtype=torch.float32) - low) / width).clamp(0.0, 1.0)
    inverse = _plain(theta, dim)
    scaled = inverse / factor * slow + inverse * (1 - slow)

    def magnitude(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    attention = scaling.get("attention_factor")
    if attention is None:
        some, every = scaling.get("mscale"), scaling.get("mscale_all_dim")
        attention = magnitude(some) / magnitude(every) if some and every else magnitude(1.0)
    return scaled, float(attention)


def _longrope(settings: RopeSettings, scaling: Mapping[str, Any]) -> tuple[torch.Tensor, float]:
    """A searched factor per pair, one set for short and one for long use (arXiv 2402.13753).

    Keys of one sequence must agree, so the set is chosen by the longest sequence this engine
    admits, not by the current length.
    """
    trained = scaling.get("original_max_position_embeddings") or settings.max_position_embeddings
    factor = scaling.get("factor") or settings.max_position_embeddings / trained
    which = "long_factor" if settings.max_model_len > trained else "short_factor"
    per_pair = torch.tensor(scaling[which], dtype=torch.float32)
    attention = scaling.get("attention_factor")
    if attention is None:
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(trained))
    return _plain(settings.theta, settings.rotary_dim) / per_pair, float(attention)


_VARIANTS: Mapping[str, Callable[[RopeSettings, Mapping[str, Any]], tuple[torch.Tensor, float]]] = {
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
