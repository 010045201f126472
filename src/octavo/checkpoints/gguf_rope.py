"""Rotary scalings of GGUF files, as Hugging Face configurations describe them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.checkpoints.gguf_file import GGUFFile
from octavo.checkpoints.gguf_layout import ROPE_FREQS, ROPE_LONG, ROPE_SHORT
from octavo.types.errors import CheckpointError

# The constants of every Llama 3.x checkpoint; GGUF stores only the factors made from them.
_LLAMA3_LOW, _LLAMA3_HIGH, _LLAMA3_ORIGINAL = 1.0, 4.0, 8192
_YARN_KEYS = {
    "attn_factor": "attention_factor",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}


def rope_scaling(
    file: GGUFFile, arch: str, theta: float, tables: Mapping[str, NDArray[np.float32]]
) -> dict[str, Any] | None:
    """The config's rope_scaling; `tables` are the tensors that hold factors of frequencies."""
    if ROPE_FREQS in tables:
        return _llama3_scaling(file, theta, tables[ROPE_FREQS])
    if ROPE_LONG in tables and ROPE_SHORT in tables:
        return _longrope(file, arch, tables)
    kind = file.get(f"{arch}.rope.scaling.type", "none")
    factor = file.get(f"{arch}.rope.scaling.factor", file.get(f"{arch}.rope.scale_linear"))
    if kind == "none" and f"{arch}.rope.scale_linear" in file:
        kind = "linear"
    if kind == "none" or factor is None:
        return None
    if kind not in ("linear", "yarn"):
        raise CheckpointError(
            f"{file.path} has {arch}.rope.scaling.type={kind!r}; octavo reads linear and yarn"
        )
    scaling: dict[str, Any] = {"rope_type": kind, "factor": short_float(factor)}
    if kind == "yarn":
        original = file.get(f"{arch}.rope.scaling.original_context_length")
        if original is not None:
            scaling["original_max_position_embeddings"] = original
        for theirs, ours in _YARN_KEYS.items():
            if f"{arch}.rope.scaling.{theirs}" in file:
                scaling[ours] = short_float(file.get(f"{arch}.rope.scaling.{theirs}"))
    return scaling


def _longrope(
    file: GGUFFile, arch: str, tables: Mapping[str, NDArray[np.float32]]
) -> dict[str, Any]:
    original = file.get(f"{arch}.rope.scaling.original_context_length")
    if original is None:
        raise CheckpointError(
            f"{file.path} has {ROPE_LONG} and lacks {arch}.rope.scaling.original_context_length"
        )
    scaling: dict[str, Any] = {
        "rope_type": "longrope",
        "long_factor": [short_float(factor) for factor in tables[ROPE_LONG]],
        "short_factor": [short_float(factor) for factor in tables[ROPE_SHORT]],
        "original_max_position_embeddings": original,
    }
    attention_factor = file.get(f"{arch}.rope.scaling.attn_factor")
    if attention_factor is not None:
        scaling["attention_factor"] = short_float(attention_factor)
    return scaling


def _llama3_scaling(
    file: GGUFFile, theta: float, rope_freqs: NDArray[np.float32]
) -> dict[str, Any]:
    """The parameters whose frequency factors (Llama 3.1, section 3.4 of its report) are stored."""
    factor = round(float(rope_freqs.max()), 3)
    exponents = np.arange(rope_freqs.size, dtype=np.float64) / rope_freqs.size
    wavelengths = 2 * math.pi * theta**exponents
    smooth = (_LLAMA3_ORIGINAL / wavelengths - _LLAMA3_LOW) / (_LLAMA3_HIGH - _LLAMA3_LOW)
    smooth = smooth.clip(0.0, 1.0)
    expected = 1.0 / ((1.0 - smooth) / factor + smooth)
    if not np.allclose(rope_freqs, expected, rtol=1e-3):
        raise CheckpointError(
            f"{file.path}: rope_freqs.weight does not hold the factors of a Llama 3 scaling; "
            "use the model's safetensors files"
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": _LLAMA3_LOW,
        "high_freq_factor": _LLAMA3_HIGH,
        "original_max_position_embeddings": _LLAMA3_ORIGINAL,
    }


def short_float(value: float) -> float:
    """The shortest decimal that is the same float32: 1e-05 where the file has 9.9999997e-06."""
    return float(np.format_float_scientific(np.float32(value)))
