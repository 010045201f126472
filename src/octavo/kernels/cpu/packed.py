"""Packed weights by the C kernels of packed.c, or by PyTorch's where those can't be built."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from ctypes import c_char_p, c_int, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Final

import torch

from octavo.checkpoints.group_codes import GroupCodes
from octavo.kernels.cpu.library import Signatures, companion_library
from octavo.kernels.packed_weights import PackedKernels
from octavo.kernels.reference.packed import TorchPacked
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

_SOURCE: Final = Path(__file__).with_name("packed.c")
_SIGNATURES: Final[Signatures] = {
    "octavo_packed_name": (c_char_p, ()),
    "octavo_packed_bytes": (c_int64, (c_void_p, c_int64)),
    "octavo_pack_codes": (None, (c_void_p,) * 5 + (c_int64,)),
    "octavo_use_large_pages": (None, (c_void_p, c_int64)),
    "octavo_packed_linear": (
        c_int,
        (c_void_p,) * 2 + (c_int64,) + (c_void_p,) * 2 + (c_int64,) * 3,
    ),
    "octavo_packed_rows": (None, (c_void_p,) * 3 + (c_int64,) * 2),
}


class _Part(ctypes.Structure):
    """part_t of packed.c."""

    _fields_ = (
        ("records", c_void_p),
        ("rows", c_int64),
        ("first", c_int64),
        ("bits", c_int32),
        ("group", c_int32),
        ("wide", c_int32),
        ("minimum", c_int32),
    )


class NativePart:
    """Records of some outputs, and what packed.c is told of them."""

    def __init__(self, library: ctypes.CDLL, codes: GroupCodes) -> None:
        form = codes.form
        self.shape = codes.shape
        rows, inputs = codes.shape
        self.description = _Part(
            None, rows, 0, form.bits, form.group, form.number_bytes == 4, int(form.minimum)
        )
        self.nbytes: int = library.octavo_packed_bytes(ctypes.byref(self.description), inputs)
        self._records = torch.empty(self.nbytes, dtype=torch.uint8)
        library.octavo_use_large_pages(self._records.data_ptr(), self.nbytes)
        self._records.zero_()
        self.description.records = self._records.data_ptr()
        contiguous = [
            None if array is None else torch.from_numpy(array).contiguous()
            for array in (codes.codes, codes.scales, codes.minimums)
        ]
        library.octavo_pack_codes(
            ctypes.byref(self.description),
            *(None if tensor is None else tensor.data_ptr() for tensor in contiguous),
            self._records.data_ptr(),
            inputs,
        )


class NativePackedLinear:
    """x @ weight.T + bias over one or several parts; a row's result is a function of that row."""

    def __init__(
        self,
        library: ctypes.CDLL,
        parts: Sequence[tuple[int, NativePart]],
        bias: torch.Tensor | None,
        num_out: int,
    ) -> None:
        self._linear = library.octavo_packed_linear
        self._parts = [part for _, part in parts]
        descriptions = (_Part * len(parts))()
        for index, (first, part) in enumerate(parts):
            ctypes.pointer(descriptions[index])[0] = part.description
            descriptions[index].first = first
        self._descriptions = descriptions
        self._bias = None if bias is None else bias.detach().float().contiguous()
        self._num_out = num_out
        self._num_in = parts[0][1].shape[1]
        self.nbytes = sum(part.nbytes for part in self._parts)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, K] float32 -> [T, N]; columns that no part has are undefined."""
        x = x.contiguous()
        rows = x.shape[0]
        out = torch.empty(rows, self._num_out)
        failed = self._linear(
            x.data_ptr(),
            self._descriptions,
            len(self._parts),
            None if self._bias is None else self._bias.data_ptr(),
            out.data_ptr(),
            rows,
            self._num_out,
            self._num_in,
        )
        if failed:
            raise MemoryError("no memory for the rounded activations of a step")
        return out


class NativePacked:
    """See PackedKernels."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.name = f"native, {library.octavo_packed_name().decode()}"

    def pack(self, codes: GroupCodes) -> NativePart:
        """Copy a weight into records."""
        return NativePart(self._library, codes)

    def bind(
        self, parts: Sequence[tuple[int, NativePart]], bias: torch.Tensor | None, num_out: int
    ) -> NativePackedLinear:
        """A product with num_out columns; parts are (first column, part)."""
        return NativePackedLinear(self._library, parts, bias, num_out)

    def lookup(self, part: NativePart, ids: torch.Tensor) -> torch.Tensor:
        """Weights of the outputs ids[T] -> [T, K] float32."""
        ids = ids.to(torch.int64).contiguous()
        inputs = part.shape[1]
        out = torch.empty(ids.shape[0], inputs)
        self._library.octavo_packed_rows(
            ctypes.byref(part.description),
            ids.data_ptr(),
            out.data_ptr(),
            ids.shape[0],
            inputs,
        )
        return out


@functools.cache
def packed_kernels() -> PackedKernels:
    """The C kernels, or PyTorch's where OCTAVO_CPU_KERNELS or the machine leaves no other choice.

    The choice is logged once.
    """
    without = "packed weights: PyTorch's kernels, many times slower"
    library = companion_library(_SOURCE, _SIGNATURES, without)
    kernels: PackedKernels = TorchPacked() if library is None else NativePacked(library)
    logger.info("packed weights: %s", kernels.name)
    return kernels
