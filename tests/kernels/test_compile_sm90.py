from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton isn't installed"),
]

# What must do the arithmetic: warpgroup instructions where a tile has 64 rows, else warp ones.
MATRIX = {
    "_paged_prefill_kernel": ("HGMMA",),
    "_paged_decode_kernel": ("HMMA", "HGMMA"),
    "_gemm_kernel": ("HMMA", "HGMMA"),
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}
    env.pop("TRITON_INTERPRET", None)
    env.setdefault("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
    command = [sys.executable, str(ROOT / "tests" / "support" / "compile_sm90.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_kernel_compiles_for_hopper(reports):
    assert {report["target"] for report in reports} == {"sm_90a"}
    names = {report["kernel"] for report in reports}
    assert set(MATRIX) <= names
    assert len(names) >= 17


def test_nothing_spills(reports):
    spilling = [r for r in reports if r["LDL"] or r["STL"]]
    assert not spilling


def test_shared_memory_fits(reports):
    assert max(report["shared"] for report in reports) <= 227 * 1024


def test_matrix_instructions_are_those_meant(reports):
    for report in reports:
        wanted = MATRIX.get(report["kernel"], ())
        assert not wanted or any(report[op] for op in wanted), report


def test_dependent_launches_wait(reports):
    """Small kernels and the GEMV are dependents; grids that fill the device are not."""
    waiting = {r["kernel"] for r in reports if r["ACQBULK"]}
    assert {"_rms_norm_kernel", "_gemv_kernel", "_qk_norm_rope_cache_kernel"} <= waiting
    assert not {"_gemm_kernel", "_paged_decode_kernel", "_paged_prefill_kernel"} & waiting
