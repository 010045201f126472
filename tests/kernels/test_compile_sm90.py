from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.timeout(900),  # about a minute on two idle cores
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton isn't installed"),
]
# Parts of the program that take about as long.
PROCESSES = (("attention",), ("small", "sampling", "chunk", "gemm", "invariant"))

# What must do the arithmetic: warpgroup instructions where a tile has 64 rows, else warp ones.
MATRIX = {
    "_paged_prefill_kernel": ("HGMMA",),
    "_paged_decode_kernel": ("HMMA", "HGMMA"),
    "_invariant_attention_kernel": ("HMMA", "HGMMA"),
    "_gemm_kernel": ("HMMA", "HGMMA"),
}


def kernels_written() -> set[str]:
    """The names of all kernels there are: a new one has to be compiled here too."""
    found = set()
    for path in (ROOT / "src" / "octavo" / "kernels").glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel"):
                found |= {node.name for mark in node.decorator_list if "jit" in ast.unparse(mark)}
    return found


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}
    env.pop("TRITON_INTERPRET", None)
    env.setdefault("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
    program = [sys.executable, str(ROOT / "tests" / "support" / "compile_sm90.py")]
    running = [
        subprocess.Popen(
            [*program, *parts], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
        for parts in PROCESSES
    ]
    found = []
    for process in running:
        out, errors = process.communicate()
        assert process.returncode == 0, errors
        found += [json.loads(line) for line in out.splitlines()]
    return found


def test_every_kernel_compiles_for_hopper(reports):
    assert {report["target"] for report in reports} == {"sm_90a"}
    assert {report["kernel"] for report in reports} == kernels_written()


def test_nothing_spills(reports):
    spilling = [r for r in reports if r["LDL"] or r["STL"]]
    assert not spilling


def test_shared_memory_fits(reports):
    assert max(report["shared"] for report in reports) <= 227 * 1024


def test_matrix_instructions_are_those_meant(reports):
    for report in reports:
        wanted = MATRIX.get(report["kernel"], ())
        assert not wanted or any(report[op] for op in wanted), report


def test_batch_invariant_gemm_is_one_kind_of_instruction(reports):
    """Warpgroup instructions and no others, but for fp32, which has a single tile."""
    found = [report for report in reports if report["kernel"] == "_invariant_gemm_kernel"]
    assert len(found) > 10
    assert not any(report["HMMA"] for report in found)
    assert sum(not report["HGMMA"] for report in found) == 1


def test_dependent_launches_wait(reports):
    """Small kernels and the GEMV are dependents; grids that fill the device are not."""
    waiting = {r["kernel"] for r in reports if r["ACQBULK"]}
    assert {"_rms_norm_kernel", "_gemv_kernel", "_qk_norm_rope_cache_kernel"} <= waiting
    assert not {"_gemm_kernel", "_paged_decode_kernel", "_paged_prefill_kernel"} & waiting
