"""Sharded state: files that hold a model's own parameters, per tensor-parallel rank."""

from __future__ import annotations

import re
from pathlib import Path

from octavo.types.errors import CheckpointError

MAX_SHARD_BYTES = 5 << 30  # of one file, unless asked otherwise
SHARD_NAME = re.compile(r"model-rank-(?P<rank>\d+)-part-(?P<part>\d+)\.safetensors")


def shard_name(rank: int, part: int) -> str:
    """The name of a rank's `part`-th file, which is vLLM's."""
    return f"model-rank-{rank}-part-{part}.safetensors"


def check_ranks(folder: Path, num_ranks: int) -> None:
    """Raises CheckpointError for a folder saved by another number of ranks, or in part."""
    parts: dict[int, list[int]] = {}
    for path in folder.iterdir():
        match = SHARD_NAME.fullmatch(path.name)
        if match is not None:
            parts.setdefault(int(match["rank"]), []).append(int(match["part"]))
    if sorted(parts) != list(range(num_ranks)):
        raise CheckpointError(
            f"{folder} holds the shards of {len(parts)} ranks; this engine has {num_ranks}: use "
            f"--tensor-parallel-size {len(parts)}, or the original checkpoint"
        )
    for rank, numbers in parts.items():
        missing = sorted(set(range(max(numbers) + 1)) - set(numbers))
        if missing:
            raise CheckpointError(f"{folder} lacks {shard_name(rank, missing[0])}")
