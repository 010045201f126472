"""Packed weights for tests: random blocks of every GGUF type, and codes made of them."""

from __future__ import annotations

import gguf
import numpy as np

from octavo.checkpoints.gguf_codes import group_codes
from octavo.checkpoints.gguf_file import BLOCK_TYPES

BLOCKS = {name: (size, num_bytes) for name, size, num_bytes in BLOCK_TYPES.values()}
# Where a block has float16 numbers, which random bytes must not make infinite.
_HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}


def random_blocks(dtype: str, rows: int, inputs: int, seed: int = 0) -> np.ndarray:
    """[rows, bytes of a row]: every code and every factor occurs, scales of either sign."""
    rng = np.random.default_rng(seed)
    size, num_bytes = BLOCKS[dtype]
    blocks = rng.integers(0, 256, (rows * inputs // size, num_bytes), dtype=np.uint8)
    for at in _HALVES[dtype]:
        numbers = rng.normal(0, 0.02, (len(blocks), 1)).astype(np.float16)
        blocks[:, at : at + 2] = numbers.view(np.uint8)
    return blocks.reshape(rows, -1)


def dequantized(dtype: str, blocks: np.ndarray) -> np.ndarray:
    """What the gguf package makes of blocks."""
    return gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[dtype])


def random_codes(dtype: str, rows: int, inputs: int, seed: int = 0):
    """(GroupCodes of random blocks, their weights)."""
    blocks = random_blocks(dtype, rows, inputs, seed)
    return group_codes(dtype, blocks), dequantized(dtype, blocks)
