"""Read and check the header of a safetensors file, without its data."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from octavo.checkpoints.model_files import unique_keys
from octavo.checkpoints.tensors import TensorHeader
from octavo.types.errors import CheckpointError

MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors format

_DTYPE_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "U16": 16,
    "I16": 16,
    "F16": 16,
    "BF16": 16,
    "U32": 32,
    "I32": 32,
    "F32": 32,
    "U64": 64,
    "I64": 64,
    "F64": 64,
    "C64": 64,
}


def read_file_headers(path: Path) -> dict[str, TensorHeader]:
    """Tensor name -> header of one .safetensors file.

    Every number is checked against the file's size before it is believed; a file that is cut
    short or malformed raises CheckpointError. Format: 8 bytes little-endian header length, the
    header as JSON, then the data (https://github.com/huggingface/safetensors#format).
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            prefix = file.read(8)
            length = int.from_bytes(prefix, "little")
            if len(prefix) < 8 or length > min(size - 8, MAX_HEADER_BYTES):
                raise _malformed(path, f"a header of {length} bytes in a file of {size}")
            text = file.read(length)
    except OSError as error:
        raise CheckpointError(f"can't read {path}: {error.strerror or error}") from error
    try:
        entries = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise _malformed(path, f"the header is not JSON ({error})") from error
    if not isinstance(entries, dict):
        raise _malformed(path, "the header is not a JSON object")
    start = 8 + length
    headers = {
        name: _parse_entry(path, name, entry, start, size - start)
        for name, entry in entries.items()
        if name != "__metadata__"
    }
    _check_disjoint(path, headers)
    return headers


def _parse_entry(path: Path, name: str, entry: Any, start: int, data_size: int) -> TensorHeader:
    if not isinstance(entry, dict):
        raise _malformed(path, f"{name} is not described by an object")
    dtype: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _DTYPE_BITS:
        raise _malformed(path, f"{name} has the unknown dtype {dtype!r}")
    if not _is_sizes(shape) or not _is_sizes(offsets) or len(offsets) != 2:
        raise _malformed(path, f"{name} has shape {shape!r} and data_offsets {offsets!r}")
    begin, end = offsets
    if not begin <= end <= data_size:
        raise _malformed(
            path,
            f"{name} lies at bytes {begin}..{end} of {data_size}; the file may be cut short: "
            "download it again",
        )
    bits = math.prod(shape) * _DTYPE_BITS[dtype]
    if bits != 8 * (end - begin):
        raise _malformed(path, f"{name} of {dtype}{shape} can't fill {end - begin} bytes")
    return TensorHeader(dtype, tuple(shape), path, start + begin, end - begin)


def _check_disjoint(path: Path, headers: dict[str, TensorHeader]) -> None:
    end, before = 0, ""
    for name, header in sorted(headers.items(), key=lambda item: (item[1].offset, item[1].nbytes)):
        if header.offset < end:
            raise _malformed(path, f"{name} and {before} share bytes")
        end, before = header.offset + header.nbytes, name


def _is_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _malformed(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{path} is malformed: {reason}")
