"""GGUFFile: metadata and tensor headers of a .gguf file, parsed without reading its data."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from octavo.checkpoints.tensors import MappedFiles, TensorHeader
from octavo.types.errors import CheckpointError

# ggml type id -> (name, elements per block, bytes per block). Numbers that are missing are types
# that ggml has removed.
BLOCK_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
    42: ("Q2_0", 64, 18),
}

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?"}
_SCALARS |= {10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MAX_DIMS = 4


@dataclass(frozen=True, slots=True)
class _Array:
    """An array of the metadata, decoded when it is asked for."""

    kind: int
    count: int
    offset: int


class GGUFFile:
    """One .gguf file (versions 2 and 3, little-endian).

    Parsing only steps over the arrays of the metadata (the vocabulary), so that configuration
    and tensor headers cost milliseconds. Every length is checked against the file's end; a
    malformed file raises CheckpointError.
    """

    def __init__(self, path: Path, files: MappedFiles) -> None:
        self.path = path
        self._data = files.view(path)
        self._values: dict[str, Any] = {}
        try:
            end, count = self._parse_metadata()
            self.headers = self._parse_headers(end, count)
        except struct.error as error:
            raise self._malformed("it ends inside its header; download it again") from error

    def get(self, key: str, default: Any = None) -> Any:
        """A metadata value: int, float, bool, str, or a list of them."""
        value = self._values.get(key, default)
        return self._decode_array(value) if isinstance(value, _Array) else value

    def item(self, key: str, index: int) -> Any:
        """One item of an array of the metadata, without decoding the others."""
        array = self._values.get(key)
        if not isinstance(array, _Array) or not 0 <= index < array.count:
            raise self._malformed(f"{key} has no item {index}")
        start = self._array_end(replace(array, count=index))
        return self._decode_array(replace(array, count=1, offset=start))[0]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def keys(self) -> list[str]:
        """The metadata keys, in file order."""
        return list(self._values)

    def _parse_metadata(self) -> tuple[int, int]:
        magic, version, num_tensors, num_keys = struct.unpack_from("<4sIQQ", self._data, 0)
        if magic != b"GGUF":
            raise self._malformed("it does not begin with 'GGUF'")
        if version not in (2, 3):
            raise self._malformed(
                f"version {version} is not readable (2 and 3 are, little-endian); "
                "convert the model again with a current converter"
            )
        position = 24
        for _ in range(num_keys):
            key, position = self._string(position)
            (kind,) = struct.unpack_from("<I", self._data, position)
            value, position = self._value(kind, position + 4)
            if key in self._values:
                raise self._malformed(f"the key {key} appears twice")
            self._values[key] = value
        return position, num_tensors

    def _parse_headers(self, position: int, count: int) -> dict[str, TensorHeader]:
        found = []
        for _ in range(count):
            name, position = self._string(position)
            (num_dims,) = struct.unpack_from("<I", self._data, position)
            if num_dims > _MAX_DIMS:
                raise self._malformed(f"{name} has {num_dims} dimensions")
            fields = struct.unpack_from(f"<{num_dims}QIQ", self._data, position + 4)
            position += 4 + 8 * num_dims + 12
            found.append((name, fields[:num_dims][::-1], fields[-2], fields[-1]))
        alignment = self._values.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise self._malformed(f"general.alignment is {alignment!r}, not a power of two")
        start = -(-position // alignment) * alignment
        headers: dict[str, TensorHeader] = {}
        for name, shape, kind, offset in found:
            if name in headers:
                raise self._malformed(f"the tensor {name} appears twice")
            headers[name] = self._header(name, shape, kind, start + offset)
        return headers

    def _header(self, name: str, shape: tuple[int, ...], kind: int, offset: int) -> TensorHeader:
        if kind not in BLOCK_TYPES:
            raise self._malformed(f"{name} has the unknown element type {kind}")
        dtype, block, block_bytes = BLOCK_TYPES[kind]
        if shape and shape[-1] % block:
            raise self._malformed(f"rows of {name} have {shape[-1]} elements; blocks have {block}")
        nbytes = math.prod(shape) // block * block_bytes
        if offset + nbytes > len(self._data):
            raise self._malformed(
                f"{name} ends at byte {offset + nbytes}, the file at {len(self._data)}; "
                "download it again"
            )
        return TensorHeader(dtype, shape, self.path, offset, nbytes)

    def _string(self, position: int) -> tuple[str, int]:
        (length,) = struct.unpack_from("<Q", self._data, position)
        end = position + 8 + length
        if end > len(self._data):
            raise self._malformed(f"a string of {length} bytes passes the end of the file")
        try:
            return str(self._data[position + 8 : end], "utf-8"), end
        except UnicodeDecodeError as error:
            raise self._malformed(f"a string of the metadata is not UTF-8 ({error})") from error

    def _value(self, kind: int, position: int) -> tuple[Any, int]:
        if kind in _SCALARS:
            form = _SCALARS[kind]
            (scalar,) = struct.unpack_from(form, self._data, position)
            return scalar, position + struct.calcsize(form)
        if kind == _STRING:
            return self._string(position)
        if kind == _ARRAY:
            item_kind, count = struct.unpack_from("<IQ", self._data, position)
            array = _Array(item_kind, count, position + 12)
            return array, self._array_end(array)
        raise self._malformed(f"the metadata has a value of the unknown type {kind}")

    def _array_end(self, array: _Array) -> int:
        if array.kind in _SCALARS:
            end = array.offset + array.count * struct.calcsize(_SCALARS[array.kind])
        elif array.kind == _STRING:
            end = array.offset
            unpack = struct.Struct("<Q").unpack_from
            for _ in range(array.count):
                end += 8 + unpack(self._data, end)[0]
        else:
            raise self._malformed(f"the metadata has an array of the unknown type {array.kind}")
        if end > len(self._data):
            raise self._malformed(f"an array of {array.count} items passes the end of the file")
        return end

    def _decode_array(self, array: _Array) -> list[Any]:
        if array.kind in _SCALARS:
            form = _SCALARS[array.kind]
            return list(np.frombuffer(self._data, form, array.count, array.offset).tolist())
        # A copy, because slices of bytes decode several times faster than those of a map.
        data = bytes(self._data[array.offset : self._array_end(array)])
        items, position = [], 0
        unpack = struct.Struct("<Q").unpack_from
        try:
            for _ in range(array.count):
                end = position + 8 + unpack(data, position)[0]
                items.append(data[position + 8 : end].decode())
                position = end
        except UnicodeDecodeError as error:
            raise self._malformed(f"a string of the metadata is not UTF-8 ({error})") from error
        return items

    def _malformed(self, reason: str) -> CheckpointError:
        return CheckpointError(f"{self.path} is malformed: {reason}")
