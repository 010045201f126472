"""GGUF blocks as codes, scales and minimums: exactly the weights that dequantizing gives.

The layouts are those of ggml (ggml-common.h and ggml-quants.c of llama.cpp describe them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.checkpoints.group_codes import CodeForm, GroupCodes, Minimum

_SMALL_BLOCK, _LARGE_BLOCK = 32, 256  # weights
_Bytes = NDArray[np.uint8]

# Types that can be kept packed. Five- and six-bit codes take a byte each.
CODE_FORMS: dict[str, CodeForm] = {
    "Q4_0": CodeForm(4, 32, 2, Minimum.MINUS_EIGHT_SCALES),
    "Q4_1": CodeForm(4, 32, 2, Minimum.STORED),
    "Q5_0": CodeForm(8, 32, 2, Minimum.NONE),
    "Q5_1": CodeForm(8, 32, 2, Minimum.STORED),
    "Q8_0": CodeForm(8, 32, 2, Minimum.NONE),
    "Q4_K": CodeForm(4, 32, 4, Minimum.STORED),
    "Q5_K": CodeForm(8, 32, 4, Minimum.STORED),
    "Q6_K": CodeForm(8, 16, 4, Minimum.NONE),
}


def group_codes(dtype: str, rows: _Bytes) -> GroupCodes:
    """The weight whose stored blocks are rows[N, bytes of a row]; `dtype` is in CODE_FORMS."""
    block = _LARGE_BLOCK if dtype.endswith("_K") else _SMALL_BLOCK
    num_rows = rows.shape[0]
    blocks = np.ascontiguousarray(rows).reshape(-1, _BLOCK_BYTES[dtype])
    codes, scales, minimums = _READERS[dtype](blocks)
    per_row = len(blocks) // num_rows
    return GroupCodes(
        CODE_FORMS[dtype],
        codes.reshape(num_rows, per_row * block),
        scales.reshape(num_rows, -1),
        None if minimums is None else minimums.reshape(num_rows, -1),
    )


_Parts = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]
_Reader = Callable[[_Bytes], _Parts]


def _half(blocks: _Bytes, at: int) -> NDArray[np.float16]:
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16)


def _nibbles(packed: _Bytes) -> _Bytes:
    """[..., n] -> [..., 2 n]: all low nibbles, then all high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _fifth_bits(blocks: _Bytes, at: int) -> _Bytes:
    """Bit i of 4 bytes at `at`, as 16 for weight i."""
    bits = np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little")
    return np.left_shift(bits, 4, dtype=np.uint8)


def _q4_0(blocks: _Bytes) -> _Parts:
    return _nibbles(blocks[:, 2:]), _half(blocks, 0), None


def _q4_1(blocks: _Bytes) -> _Parts:
    return _nibbles(blocks[:, 4:]), _half(blocks, 0), _half(blocks, 2)


def _q5_0(blocks: _Bytes) -> _Parts:
    codes = (_nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)).view(np.int8) - np.int8(16)
    return codes, _half(blocks, 0), None


def _q5_1(blocks: _Bytes) -> _Parts:
    codes = (_nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)).view(np.int8)
    return codes, _half(blocks, 0), _half(blocks, 2)


def _q8_0(blocks: _Bytes) -> _Parts:
    return np.ascontiguousarray(blocks[:, 2:]).view(np.int8), _half(blocks, 0), None


def _k_numbers(blocks: _Bytes) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(scales, minimums) of the 8 groups of a block with 6-bit factors for both, each [B, 8].

    Bytes 4..15 hold them: the low 6 bits of the first four are the scales 0..3, of the next four
    the minimums 0..3; the last four have the low nibbles of scales and minimums 4..7, whose upper
    bits are the two that the first eight bytes have left.
    """
    first, second, third = (blocks[:, at : at + 4] for at in (4, 8, 12))
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    minimums = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    scale = _half(blocks, 0).astype(np.float32)
    least = _half(blocks, 2).astype(np.float32)
    return scale * scales, -(least * minimums)


def _q4_k(blocks: _Bytes) -> _Parts:
    scales, minimums = _k_numbers(blocks)
    return _nibbles(blocks[:, 16:].reshape(-1, 4, 32)), scales, minimums


def _q5_k(blocks: _Bytes) -> _Parts:
    scales, minimums = _k_numbers(blocks)
    # Bit g of byte i is the fifth bit of weight i of group g.
    high = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    low = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return (low | high << 4).view(np.int8), scales, minimums


def _q6_k(blocks: _Bytes) -> _Parts:
    # Two halves of 128 weights, each in four runs of 32: runs 0 and 2 are the nibbles of the first
    # 32 bytes, 1 and 3 those of the next; byte i of `high` has two bits for weight i of each run.
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts & 3
    codes = (low | high << 4).view(np.int8) - np.int8(32)
    factors = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8)
    return codes, _half(blocks, 208).astype(np.float32) * factors, None


_READERS: dict[str, _Reader] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
_BLOCK_BYTES = {
    "Q4_0": 18,
    "Q4_1": 20,
    "Q5_0": 22,
    "Q5_1": 24,
    "Q8_0": 34,
    "Q4_K": 144,
    "Q5_K": 176,
    "Q6_K": 210,
}
