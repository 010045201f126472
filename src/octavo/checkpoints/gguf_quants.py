"""Dequantization of GGUF blocks to float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from octavo.types.errors import CheckpointError
from octavo.utils.registry import Registry

_Bytes = NDArray[np.uint8]
# The package brings others along, which a front end that reads no blocks does without.
_GGUF: Registry[Any] = Registry(
    "part of the gguf package",
    {"types": "gguf:GGMLQuantizationType", "dequantize": "gguf.quants:dequantize"},
)


def dequantize(name: str, dtype: str, rows: _Bytes) -> NDArray[Any]:
    """Float32 values of a quantized tensor, shape [..., elements of a row].

    `rows` are the stored blocks, uint8 [..., bytes of a row]. Raises CheckpointError for a type
    that neither the gguf package nor this module knows.
    """
    if dtype in _OWN:
        block_bytes, read = _OWN[dtype]
        blocks = np.ascontiguousarray(rows).reshape(-1, block_bytes)
        return read(blocks).reshape(*rows.shape[:-1], -1)
    try:
        kind = _GGUF.get("types")[dtype]
        return cast("NDArray[Any]", _GGUF.get("dequantize")(rows, kind))
    except (KeyError, NotImplementedError) as error:
        raise CheckpointError(
            f"{name} has the GGUF type {dtype}, which the installed gguf package "
            "can't dequantize; upgrade it (pip install -U gguf), or use a file of another "
            "quantization, such as Q8_0 or Q4_K"
        ) from error


def _q8_1(blocks: _Bytes) -> NDArray[np.float32]:
    """Half d, half sum, 32 signed bytes."""
    return _scale(blocks, np.float16) * blocks[:, 4:].view(np.int8).astype(np.float32)


def _q8_k(blocks: _Bytes) -> NDArray[np.float32]:
    """Float d, 256 signed bytes, sums of sixteen."""
    return _scale(blocks, np.float32) * blocks[:, 4:260].view(np.int8).astype(np.float32)


def _q1_0(blocks: _Bytes) -> NDArray[np.float32]:
    """Half d, 128 signs from the lowest bit on."""
    bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").astype(np.float32)
    return _scale(blocks, np.float16) * (2 * bits - 1)


def _q2_0(blocks: _Bytes) -> NDArray[np.float32]:
    """Half d, 64 codes of two bits from the lowest on, which stand for -1, 0, 1, 2."""
    shifts = np.array([0, 2, 4, 6], np.uint8)
    codes = (blocks[:, 2:, None] >> shifts & 3).reshape(len(blocks), -1).astype(np.float32)
    return _scale(blocks, np.float16) * (codes - 1)


def _scale(blocks: _Bytes, kind: type[np.floating[Any]]) -> NDArray[np.float32]:
    """The number that every block begins with, [blocks, 1]."""
    first = np.ascontiguousarray(blocks[:, : np.dtype(kind).itemsize])
    return first.view(kind).astype(np.float32)


# Types that the gguf package has no reader for: (bytes per block, reader).
_OWN: Mapping[str, tuple[int, Callable[[_Bytes], NDArray[np.float32]]]] = {
    "Q8_1": (36, _q8_1),
    "Q8_K": (292, _q8_k),
    "Q1_0": (18, _q1_0),
    "Q2_0": (18, _q2_0),
}
