from dataclasses import dataclass

from octavo.engine.plan import PlanLine
from octavo.engine.plan_check import compare, comparison_table

MIB = 1 << 20


@dataclass
class Planned:
    lines: tuple[PlanLine, ...]


PLAN = Planned(
    (
        PlanLine("weights", 1000 * MIB),
        PlanLine("MLP layers", 600 * MIB, of="weights"),
        PlanLine("activations", 100 * MIB),
        PlanLine("logits", 30 * MIB),
        PlanLine("rotary table", 5 * MIB),
        PlanLine("CUDA context", 700 * MIB),
    )
)


def test_lines_side_by_side():
    measured = {
        "context": 650 * MIB,
        "model": 1000 * MIB,
        "weights": 6 * MIB,
        "largest steps": 120 * MIB,
        "fragmentation": 20 * MIB,
        "cache and tables": 2001 * MIB,
    }
    lines = compare(PLAN, 2000 * MIB, measured)
    figures = [(line.parts, line.planned // MIB, line.measured // MIB) for line in lines]
    assert figures == [
        ("weights + rotary table", 1005, 1006),
        ("activations + logits", 130, 140),
        ("KV cache", 2000, 2001),
        ("CUDA context", 700, 650),
    ]
    last = comparison_table(lines).splitlines()[-1]
    assert last.split() == ["sum", "3,835", "3,797"]


def test_nothing_measured():
    assert compare(PLAN, 1, {}) == []
