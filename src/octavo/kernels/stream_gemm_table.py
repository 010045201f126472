"""Which configuration multiplies which weight fastest: measured, and checked in."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from octavo.kernels.stream_gemm import GemmConfig, GemvConfig, default_config

Config = GemvConfig | GemmConfig

# (N, K) of the weight -> (largest number of rows, configuration or None for cuBLAS), ascending.
_MEASURED: Final[Mapping[tuple[int, int], tuple[tuple[int, Config | None], ...]]] = (
    MappingProxyType({})
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
    """The plan for a weight [num_out, inner]; unmeasured shapes get it up to 32 rows."""
    measured = _MEASURED.get((num_out, inner))
    if measured is not None:
        return Plan(measured)
    if inner % 64:
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
