"""Tensor headers of files written by torch.save, without torch and without running their pickle."""

from __future__ import annotations

import io
import math
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from octavo.checkpoints.plain_pickle import PlainPickle
from octavo.checkpoints.tensors import NUMPY_DTYPES, TensorHeader
from octavo.types.errors import CheckpointError

MAX_PICKLE_BYTES = 64 << 20  # names and shapes only; a million tensors take less

_UNTYPED = "bytes"
_STORAGES = {
    "torch.FloatStorage": "F32",
    "torch.DoubleStorage": "F64",
    "torch.HalfStorage": "F16",
    "torch.BFloat16Storage": "BF16",
    "torch.LongStorage": "I64",
    "torch.IntStorage": "I32",
    "torch.ShortStorage": "I16",
    "torch.CharStorage": "I8",
    "torch.ByteStorage": "U8",
    "torch.BoolStorage": "BOOL",
    "torch.UntypedStorage": _UNTYPED,
    "torch.storage.UntypedStorage": _UNTYPED,
}
_DTYPES = {
    "torch.float32": "F32",
    "torch.float64": "F64",
    "torch.float16": "F16",
    "torch.bfloat16": "BF16",
    "torch.int64": "I64",
    "torch.int32": "I32",
    "torch.int16": "I16",
    "torch.int8": "I8",
    "torch.uint8": "U8",
    "torch.uint16": "U16",
    "torch.uint32": "U32",
    "torch.uint64": "U64",
    "torch.bool": "BOOL",
    "torch.float8_e4m3fn": "F8_E4M3",
    "torch.float8_e5m2": "F8_E5M2",
    "torch.float8_e8m0fnu": "F8_E8M0",
}
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001
# Dicts that hold the tensors when the outermost one holds none.
_INNER = ("state_dict", "model", "module")


@dataclass(frozen=True, slots=True)
class _Storage:
    """Elements of a file that tensors are views of; `start` and `size` count elements."""

    key: str
    dtype: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class _Stored:
    """A tensor as its pickle describes it; `offset` and `strides` count elements."""

    storage: _Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a storage's bytes lie in the file."""

    offset: int
    nbytes: int


def read_file_headers(path: Path) -> dict[str, TensorHeader]:
    """Tensor name -> header of one file that torch.save wrote (a zip file, or the older form).

    The pickle inside is interpreted, not run: it may describe tensors and plain values only, so
    that reading a stranger's file is safe. Every number is checked against the file. Raises
    CheckpointError for anything else, naming what it refuses.
    """
    try:
        with path.open("rb") as file:
            start = file.read(4)
        if start == b"PK\x03\x04":
            content, places = _read_zip(path)
        else:
            content, places = _read_legacy(path)
    except (OSError, zipfile.BadZipFile, struct.error) as error:
        raise _malformed(path, f"{error}") from error
    tensors = _tensors(content)
    if not tensors:
        raise CheckpointError(f"{path} holds no tensors by name; is it a state_dict?")
    return {name: _header(path, name, stored, places) for name, stored in tensors.items()}


def _read_zip(path: Path) -> tuple[Any, dict[str, _Place]]:
    size = path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        pickles = [name for name in entries if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise _malformed(path, "it is a zip file without one data.pkl")
        folder = pickles[0].removesuffix("data.pkl")
        packed = [name for name, entry in entries.items() if entry.compress_type != 0]
        if packed:
            raise _malformed(path, f"{packed[0]} is compressed, which torch.save never does")
        if entries[pickles[0]].file_size > MAX_PICKLE_BYTES:
            raise _malformed(path, f"its pickle is larger than {MAX_PICKLE_BYTES} bytes")
        order = f"{folder}byteorder"
        if order in entries and archive.read(order).strip() != b"little":
            raise _malformed(path, "it was written on a big-endian machine")
        content = _pickle(_zip_storage).read(io.BytesIO(archive.read(pickles[0])), str(path))
    prefix = f"{folder}data/"
    places = {}
    with path.open("rb") as file:
        for name, entry in entries.items():
            if name.startswith(prefix):
                place = _Place(_data_offset(file, entry.header_offset), entry.file_size)
                if place.offset + place.nbytes > size:
                    raise _malformed(path, f"{name} ends beyond it; download it again")
                places[name.removeprefix(prefix)] = place
    return content, places


def _data_offset(file: io.BufferedReader, header: int) -> int:
    """Where an entry's data begin: its local header has lengths of its own."""
    file.seek(header)
    fields = struct.unpack("<4s5H3I2H", file.read(30))
    return header + 30 + int(fields[-2]) + int(fields[-1])


def _read_legacy(path: Path) -> tuple[Any, dict[str, _Place]]:
    size = path.stat().st_size
    storages: dict[str, _Storage] = {}

    def storage(persistent_id: Any) -> _Storage:
        whole, view = _legacy_storage(persistent_id)
        storages[whole.key] = whole
        return view

    with path.open("rb") as file:
        stream = io.BytesIO(file.read(min(size, MAX_PICKLE_BYTES)))
    reader, source = _pickle(storage), str(path)
    if reader.read(stream, source) != _LEGACY_MAGIC or reader.read(stream, source) != (
        _LEGACY_PROTOCOL
    ):
        raise _malformed(path, "torch.save did not write it")
    system = reader.read(stream, source)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise _malformed(path, "it was written on a big-endian machine")
    content = reader.read(stream, source)
    keys = reader.read(stream, source)
    places, position = {}, stream.tell()
    with path.open("rb") as file:
        for key in keys if isinstance(keys, list) else ():
            if key not in storages:
                raise _malformed(path, f"nothing tells what its storage {key!r} is")
            file.seek(position)
            (count,) = struct.unpack("<q", file.read(8))
            nbytes = count * _itemsize(storages[key].dtype)
            if count < 0 or position + 8 + nbytes > size:
                raise _malformed(path, f"its storage {key} ends beyond it; download it again")
            places[key] = _Place(position + 8, nbytes)
            position += 8 + nbytes
    return content, places


def _pickle(load_id: Any) -> PlainPickle:
    rebuild: dict[str, Callable[..., Any]] = {
        "torch._utils._rebuild_tensor": _rebuild_tensor,
        "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
        "torch._utils._rebuild_tensor_v3": _rebuild_typed,
        "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
        "torch._utils._rebuild_parameter_with_state": lambda tensor, *_: tensor,
        "torch.Size": lambda sizes: sizes,
        "collections.OrderedDict": _ordered_dict,
    }
    return PlainPickle(_STORAGES | _DTYPES, rebuild, load_id)


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Stored:
    return _rebuild_typed(storage, offset, shape, strides, None, None, storage.dtype)


def _rebuild_typed(
    storage: Any,
    offset: Any,
    shape: Any,
    strides: Any,
    _grad: Any,
    _hooks: Any,
    dtype: Any,
    *_: Any,
) -> _Stored:
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, _Storage) or dtype not in NUMPY_DTYPES:
        raise ValueError("a tensor has no storage")
    if len(shape) != len(strides) or not all(type(n) is int and n >= 0 for n in numbers):
        raise ValueError(f"a tensor has the shape {shape!r} and the strides {strides!r}")
    return _Stored(storage, dtype, offset, tuple(shape), tuple(strides))


def _ordered_dict(pairs: Any = ()) -> dict[str, Any]:
    if not all(isinstance(key, str) for key, _ in pairs):
        raise ValueError("a dict has a key that is no name")
    return dict(pairs)


def _zip_storage(persistent_id: Any) -> _Storage:
    _, dtype, key, _, size = persistent_id
    return _checked(_Storage(key, dtype, 0, size))


def _legacy_storage(persistent_id: Any) -> tuple[_Storage, _Storage]:
    """(a whole storage, the part of it that is meant)."""
    _, dtype, key, _, size, *rest = persistent_id
    whole = _checked(_Storage(key, dtype, 0, size))
    view = rest[0] if rest else None
    if view is None:
        return whole, whole
    _, start, count = view
    return whole, _checked(replace(whole, start=start, size=count))


def _checked(storage: _Storage) -> _Storage:
    numbers = (storage.start, storage.size)
    known = storage.dtype in NUMPY_DTYPES or storage.dtype == _UNTYPED
    if not isinstance(storage.key, str) or not known or any(type(n) is not int for n in numbers):
        raise ValueError(f"a storage is described as {storage!r}")
    return storage


def _tensors(content: Any) -> dict[str, _Stored]:
    """The tensors of a state_dict, or of one that lies in it under a usual name."""
    if not isinstance(content, dict):
        return {}
    candidates = [content, *(content.get(key) for key in _INNER)]
    named = (
        {name: value for name, value in inner.items() if isinstance(value, _Stored)}
        for inner in candidates
        if isinstance(inner, dict)
    )
    return next(filter(None, named), {})


def _header(path: Path, name: str, stored: _Stored, places: Mapping[str, _Place]) -> TensorHeader:
    place = places.get(stored.storage.key)
    if place is None:
        raise _malformed(path, f"the data of {name} are not in it")
    itemsize = _itemsize(stored.dtype)
    numel = math.prod(stored.shape)
    span = 0
    if numel:
        steps = zip(stored.shape, stored.strides, strict=True)
        span = 1 + sum((size - 1) * stride for size, stride in steps)
    start = stored.storage.start * _itemsize(stored.storage.dtype) + stored.offset * itemsize
    if start < 0 or start + span * itemsize > place.nbytes:
        raise _malformed(path, f"{name} lies beyond its storage of {place.nbytes} bytes")
    strides = None if _in_rows(stored) else stored.strides
    return TensorHeader(
        stored.dtype, stored.shape, path, place.offset + start, numel * itemsize, strides
    )


def _in_rows(stored: _Stored) -> bool:
    """Whether elements lie one after the other, the last dimension innermost."""
    expected = 1
    for size, stride in zip(reversed(stored.shape), reversed(stored.strides), strict=True):
        if size > 1 and stride != expected:
            return math.prod(stored.shape) == 0
        expected *= size
    return True


def _itemsize(dtype: str) -> int:
    return 1 if dtype == _UNTYPED else np.dtype(NUMPY_DTYPES[dtype]).itemsize


def _malformed(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{path} is malformed: {reason}")
