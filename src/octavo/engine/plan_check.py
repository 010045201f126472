"""The memory plan beside what a started engine measured, line by line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.engine.plan import Plan

_MIB = 1 << 20
# Lines of the plan -> what the worker measured, by its names.
_LINES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("weights", "rotary table"), ("model", "weights")),
    (("activations", "logits", "attention", "cuBLAS"), ("largest steps", "fragmentation")),
    (("KV cache", "request table"), ("cache and tables",)),
    (("CUDA graphs",), ("graphs",)),
    (("CUDA context",), ("context",)),
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One line: what was planned for some parts and what they took."""

    parts: str
    planned: int
    measured: int


def compare(plan: Plan, kv_cache_bytes: int, measured: Mapping[str, int]) -> list[Comparison]:
    """The lines that were measured; [] on a device that measures nothing.

    `kv_cache_bytes` is the size the cache got in the end. Graphs are measured before most of them
    are captured, so their line stays below the plan's.
    """
    planned = {line.name: line.num_bytes for line in plan.lines if line.of is None}
    planned["KV cache"] = kv_cache_bytes
    lines = []
    for parts, names in _LINES:
        if any(name in measured for name in names):
            lines.append(
                Comparison(
                    " + ".join(part for part in parts if part in planned),
                    sum(planned.get(part, 0) for part in parts),
                    sum(measured.get(name, 0) for name in names),
                )
            )
    return lines


def comparison_table(lines: list[Comparison]) -> str:
    """The lines as text, in MiB."""
    total = Comparison(
        "sum", sum(line.planned for line in lines), sum(line.measured for line in lines)
    )
    rows = [f"  {'MiB':<36}{'planned':>10}{'measured':>10}"]
    for line in (*lines, total):
        rows.append(
            f"  {line.parts:<36}{line.planned / _MIB:>10,.0f}{line.measured / _MIB:>10,.0f}"
        )
    return "\n".join(rows)
