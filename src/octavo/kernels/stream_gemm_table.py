"""Which configuration multiplies which weight fastest: measured, and checked in."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from octavo.kernels.stream_gemm import GemmConfig, GemvConfig, default_config

Config = GemvConfig | GemmConfig

_CUBLAS: Final = None
_G8 = GemvConfig(block_n=4, num_warps=8)
_G4 = GemvConfig(block_n=2, num_warps=4)

# (N, K) of the weight -> (largest number of rows, configuration or None for cuBLAS), ascending.
# One H200, bf16, medians of CUDA-graph replays over weights that don't fit in L2; the figures are
# in benchmarks/results. An entry is here if it beat cuBLAS or tied with it.
_MEASURED: Final[Mapping[tuple[int, int], tuple[tuple[int, Config | None], ...]]] = (
    MappingProxyType(
        {
            # Qwen3-8B: q/k/v, output, gate and up, down, LM head
            (6144, 4096): ((1, _G8), (16, _CUBLAS), (32, GemmConfig(32, 64, 128, 1, 4, 4))),
            (4096, 4096): (
                (1, _G8),
                (16, GemmConfig(16, 128, 64, 4, 8, 5)),
                (32, GemmConfig(32, 64, 128, 2, 4, 4)),
            ),
            (24576, 4096): (
                (1, _G8),
                (16, GemmConfig(16, 128, 64, 1, 8, 5)),
                (32, GemmConfig(32, 128, 64, 1, 4, 4)),
            ),
            (4096, 12288): (
                (1, _G8),
                (16, GemmConfig(16, 64, 128, 4, 4, 4)),
                (32, GemmConfig(32, 64, 128, 2, 4, 4)),
                (64, GemmConfig(64, 64, 128, 2, 4, 4)),
            ),
            (151936, 4096): (
                (1, GemvConfig(block_n=2, num_warps=8)),
                (16, GemmConfig(16, 64, 128, 1, 4, 4)),
                (32, GemmConfig(32, 64, 128, 1, 4, 4)),
            ),
            # Qwen3-0.6B, in the same order
            (4096, 1024): (
                (1, _G4),
                (16, GemmConfig(16, 32, 256, 1, 4, 4)),
                (32, GemmConfig(32, 32, 128, 1, 4, 4)),
            ),
            (1024, 2048): (
                (1, _G8),
                (16, GemmConfig(16, 32, 128, 4, 4, 4)),
                (32, GemmConfig(32, 32, 128, 4, 4, 4)),
            ),
            (6144, 1024): (
                (1, _G4),
                (16, GemmConfig(16, 64, 128, 1, 4, 4)),
                (32, GemmConfig(32, 64, 128, 1, 4, 4)),
                (64, GemmConfig(64, 64, 128, 1, 4, 4)),
            ),
            (1024, 3072): (
                (1, _G4),
                (16, GemmConfig(16, 64, 64, 8, 4, 6)),
                (32, GemmConfig(32, 32, 128, 4, 4, 4)),
            ),
            (151936, 1024): (
                (1, GemvConfig(block_n=4, num_warps=4)),
                (16, GemmConfig(16, 128, 64, 1, 8, 5)),
                (32, GemmConfig(32, 64, 128, 1, 4, 4)),
                (64, GemmConfig(64, 64, 64, 1, 4, 6)),
            ),
        }
    )
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How to multiply by one weight: (largest number of rows, configuration), ascending.

    More rows than the last entry has, and entries of None, go to cuBLAS.
    """

    entries: tuple[tuple[int, Config | None], ...]

    def config(self, num_rows: int) -> Config | None:
        """The configuration for `num_rows` rows, None for cuBLAS."""
        for max_rows, config in self.entries:
            if num_rows <= max_rows:
                return config if num_rows else None
        return None


@functools.cache
def plan_for(num_out: int, inner: int) -> Plan:
    """The plan for a weight [num_out, inner]: measured, else streaming up to 32 rows."""
    measured = _MEASURED.get((num_out, inner))
    if measured is not None:
        return Plan(measured)
    if inner % 16:
        return Plan(())
    return Plan(tuple((rows, default_config(rows, num_out, inner)) for rows in (1, 16, 32)))


def measured_configs() -> list[tuple[int, int, int, Config]]:
    """(rows, N, K, configuration) of every streaming entry of the table."""
    return [
        (max_rows, num_out, inner, config)
        for (num_out, inner), entries in _MEASURED.items()
        for max_rows, config in entries
        if config is not None
    ]
