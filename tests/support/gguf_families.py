"""Small models that llama.cpp's own converter wrote as GGUF, and the weights they were made from.

tools/make_gguf_families.py makes them.
"""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data" / "gguf_families"
FAMILIES = (
    "llama",
    "llama-biases",
    "llama-yarn",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "phi3",
    "phi3-longrope",
    "olmo2",
    "olmo3",
    "granite",
    "stablelm",
    "cohere",
    "cohere-norms",
    "cohere2",
    "smollm3",
    "exaone",
    "exaone4",
    "exaone4-full",
    "gpt2",
    "gpt-neox",
    "gpt-neox-sequential",
    "bloom",
    "mpt",
    "internlm2",
)


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The values of a tensor: a few numbers that every type holds exactly, by the name alone."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return (1 + rng.integers(-4, 4, shape) / 8).astype(np.float32)


def hf_config(family: str) -> dict:
    """The config.json that was converted."""
    return json.loads((DATA / "configs.json").read_text())[family]


def unpack(family: str, folder: Path) -> Path:
    """The GGUF file of a family."""
    path = folder / f"{family}.gguf"
    path.write_bytes(gzip.decompress((DATA / f"{family}.gguf.gz").read_bytes()))
    return path
