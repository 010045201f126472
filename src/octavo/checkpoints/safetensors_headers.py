"""Read and check the headers of safetensors files, single or sharded, without their data."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from octavo.checkpoints.tensors import TensorHeader
from octavo.types.errors import CheckpointError

INDEX_NAME = "model.safetensors.index.json"
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
        entries = json.loads(text, object_pairs_hook=_reject_duplicates)
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


def read_model_headers(folder: Path) -> dict[str, TensorHeader]:
    """Tensor name -> header over all weight files of a model folder.

    With `model.safetensors.index.json` the files are the ones it names, and each must hold the
    tensors the index says it holds; other files are ignored. Without an index the file is
    `model.safetensors`, else every `*.safetensors` in the folder. Raises CheckpointError for a
    missing shard, a tensor absent from its shard, or a tensor that two files both hold.
    """
    index = folder / INDEX_NAME
    if index.is_file():
        return _read_indexed(folder, index)
    single = folder / "model.safetensors"
    if single.is_file():
        return read_file_headers(single)
    files = sorted(folder.glob("*.safetensors"))
    # Mistral repositories hold the same weights a second time under this name.
    files = [file for file in files if not file.name.startswith("consolidated")] or files
    if not files:
        raise CheckpointError(_no_weights(folder))
    return _merge((file, read_file_headers(file)) for file in files)


def _read_indexed(folder: Path, index: Path) -> dict[str, TensorHeader]:
    weight_map = _read_weight_map(index)
    shard_names = sorted(set(weight_map.values()))
    missing = [name for name in shard_names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{folder} lacks {len(missing)} of {len(shard_names)} weight files that "
            f"{INDEX_NAME} names: {_some(missing)}; finish the download"
        )
    shards = {name: read_file_headers(folder / name) for name in shard_names}
    absent = [name for name, shard in weight_map.items() if name not in shards[shard]]
    if absent:
        raise CheckpointError(
            f"{INDEX_NAME} in {folder} names tensors that their files do not hold: "
            f"{_some([f'{name} (in {weight_map[name]})' for name in absent])}"
        )
    _merge((folder / name, headers) for name, headers in shards.items())
    return {name: shards[shard][name] for name, shard in weight_map.items()}


def _read_weight_map(index: Path) -> dict[str, str]:
    try:
        data = json.loads(index.read_bytes(), object_pairs_hook=_reject_duplicates)
        weight_map = data["weight_map"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _malformed(index, f"no readable weight_map ({error!r})") from error
    if not isinstance(weight_map, dict) or not weight_map:
        raise _malformed(index, "weight_map is not a non-empty object")
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise _malformed(index, f"{name} is mapped to {shard!r}, which is not a file name")
    return weight_map


def _merge(files: Iterable[tuple[Path, dict[str, TensorHeader]]]) -> dict[str, TensorHeader]:
    merged: dict[str, TensorHeader] = {}
    for path, headers in files:
        for name, header in headers.items():
            if name in merged:
                raise CheckpointError(
                    f"{name} is in both {merged[name].file.name} and {path.name} of "
                    f"{path.parent}; remove the file that does not belong to the model"
                )
            merged[name] = header
    return merged


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


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        repeated = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
        raise ValueError(f"{repeated[0]!r} appears twice")
    return result


def _no_weights(folder: Path) -> str:
    others = sorted(
        file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern)
    )
    if others:
        return (
            f"{folder} has weights only as {_some(others)}; octavo reads safetensors and GGUF: "
            "convert them with transformers' save_pretrained()"
        )
    return f"{folder} has no *.safetensors files; finish the download, or use --load-format dummy"


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"


def _malformed(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{path} is malformed: {reason}")
