"""Checkpoint tensors as torch tensors, and whether a checkpoint fits a model."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping

import torch

from octavo.checkpoints.tensors import RawTensor
from octavo.models.common.weights import WeightMap
from octavo.types.errors import CheckpointError

# Types that numpy views as unsigned integers.
_REINTERPRETED = {
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
}
_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "F16": torch.float16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "F32": torch.float32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F64": torch.float64,
    **_REINTERPRETED,
}
_MAX_LISTED = 20


def torch_tensors(raw: Iterable[tuple[str, RawTensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """The same tensors for torch, one at a time; data stay where they are."""
    for name, tensor in raw:
        yield name, as_torch(tensor)


def as_torch(raw: RawTensor) -> torch.Tensor:
    """A torch view of a tensor's data."""
    tensor = torch.from_numpy(raw.array)
    dtype = _REINTERPRETED.get(raw.dtype)
    return tensor if dtype is None else tensor.view(dtype)


def torch_dtype(name: str) -> torch.dtype:
    """The type of elements that a checkpoint stores plainly under this name."""
    return _DTYPES[name]


def check_fit(weights: WeightMap, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Compare what a model takes with what a checkpoint holds, before anything is read.

    Raises CheckpointError that lists every missing, extra and misshapen tensor by name, with the
    likeliest counterpart of each missing one.
    """
    targets = weights.targets
    shapes = {weights.canonical(name): shape for name, shape in shapes.items()}
    missing = [name for name in targets if name not in shapes]
    extra = [name for name in shapes if name not in targets and not weights.ignores(name)]
    wrong = [name for name in targets if name in shapes and targets[name].shape != shapes[name]]
    lines = _listed("missing", [name + _nearest(name, extra) for name in missing[:_MAX_LISTED]])
    lines += _rest(missing)
    lines += _listed("not in the model", extra[:_MAX_LISTED])
    lines += _rest(extra)
    lines += _listed(
        "of another shape",
        [
            f"{name}: {list(shapes[name])} in the file, {list(targets[name].shape)} by the config"
            for name in wrong[:_MAX_LISTED]
        ],
    )
    lines += _rest(wrong)
    if lines:
        raise CheckpointError("\n".join(["the checkpoint does not fit the model", *lines]))


def _listed(what: str, entries: list[str]) -> list[str]:
    return [f"  {what}: {entry}" for entry in entries]


def _rest(names: list[str]) -> list[str]:
    more = len(names) - _MAX_LISTED
    return [f"    and {more} more"] if more > 0 else []


def _nearest(name: str, candidates: Collection[str]) -> str:
    close = difflib.get_close_matches(name, candidates, n=1, cutoff=0.8)
    return f" (the file has {close[0]})" if close else ""
