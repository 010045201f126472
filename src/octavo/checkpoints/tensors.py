"""TensorHeader and RawTensor: where a tensor lies in a file, and its bytes as a numpy view."""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from octavo.types.errors import CheckpointError

# Element types that numpy has no name for are viewed as unsigned integers of the same width.
NUMPY_DTYPES: dict[str, str] = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "F8_E4M3": "|u1",
    "F8_E5M2": "|u1",
    "F8_E8M0": "|u1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "BF16": "<u2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
}


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """One tensor of a checkpoint, described without reading its data.

    `dtype` is the name the file format uses: "F32", "BF16", ... in both formats, and the block
    type ("Q4_1", "Q8_0", ...) for a quantized GGUF tensor. `shape` counts elements, outermost
    first. `offset` and `nbytes` locate the stored bytes in `file`. `strides` are there when
    elements don't lie one after the other: how many lie between neighbours of each dimension.
    `direct` is false when what is loaded is not what is stored (rows move, a norm is shifted).
    """

    dtype: str
    shape: tuple[int, ...]
    file: Path
    offset: int
    nbytes: int
    strides: tuple[int, ...] | None = None
    direct: bool = True

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class RawTensor(NamedTuple):
    """A tensor's data: `array` is a view of the file where possible.

    `dtype` says how to read it: "BF16" data is a uint16 array and the F8 kinds are uint8 arrays,
    to be reinterpreted by whoever has such types; a packed block type has a uint8 array of shape
    [..., bytes per row].
    """

    name: str
    dtype: str
    array: NDArray[Any]


class MappedFiles:
    """Files opened by memory map on first use and kept open as long as this object lives."""

    def __init__(self) -> None:
        self._maps: dict[Path, memoryview] = {}

    def view(self, path: Path) -> memoryview:
        """All bytes of the file, mapped and not read."""
        if path not in self._maps:
            try:
                with path.open("rb") as file:
                    # Copy-on-write: pages stay shared, and torch.from_numpy takes the array.
                    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            except (OSError, ValueError) as error:
                raise CheckpointError(f"can't read {path}: {error}") from error
            self._maps[path] = memoryview(mapped)
        return self._maps[path]

    def raw_bytes(self, header: TensorHeader) -> NDArray[np.uint8]:
        """The stored bytes of a tensor, one-dimensional."""
        if header.nbytes == 0:
            return np.empty(0, np.uint8)
        data = self.view(header.file)
        end = header.offset + header.nbytes
        if end > len(data):
            raise CheckpointError(
                f"{header.file} ends at byte {len(data)} and a tensor at {end}; the file is "
                "incomplete: download it again"
            )
        return np.frombuffer(data, np.uint8, header.nbytes, header.offset)

    def read(self, name: str, header: TensorHeader) -> RawTensor:
        """A tensor whose element type is one of NUMPY_DTYPES; a view where it is aligned."""
        numpy_dtype = NUMPY_DTYPES.get(header.dtype)
        if numpy_dtype is None:
            raise CheckpointError(
                f"{name} in {header.file} has the element type {header.dtype}, which octavo "
                f"does not read; it reads {', '.join(NUMPY_DTYPES)}"
            )
        if header.strides is not None and header.numel:
            return RawTensor(name, header.dtype, self._strided(header, numpy_dtype))
        array = self.raw_bytes(header)
        if header.offset % np.dtype(numpy_dtype).itemsize:
            array = array.copy()
        return RawTensor(name, header.dtype, array.view(numpy_dtype).reshape(header.shape))

    def _strided(self, header: TensorHeader, numpy_dtype: str) -> NDArray[Any]:
        """A copy in row order."""
        strides = header.strides or ()
        itemsize = np.dtype(numpy_dtype).itemsize
        span = 1 + sum((n - 1) * step for n, step in zip(header.shape, strides, strict=True))
        flat = self.raw_bytes(replace(header, nbytes=span * itemsize)).copy().view(numpy_dtype)
        steps = [step * itemsize for step in strides]
        return np.lib.stride_tricks.as_strided(flat, header.shape, steps).copy()
