"""Compiled kernels in a cache: recorded, compiled in processes, loaded, moved, broken, repaired."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton isn't installed"
)


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict:
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}
    env.pop("TRITON_INTERPRET", None)
    script = ROOT / "tests" / "support" / "compile_cache_steps.py"
    command = [sys.executable, str(script), str(tmp_path_factory.mktemp("kernels"))]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_specialization_is_recorded_once_and_not_compiled(answer):
    assert answer["recorded"] == ["_staged_write_kernel", "_rms_norm_kernel"]
    assert answer["compiled before"] <= 1  # the file that tries whether the folder can be written


def test_one_failure_is_one_jobs(answer):
    (failure,) = answer["failures"]
    assert "no_such_kernel" in failure


def test_a_moved_cache_is_loaded_without_compiling(answer):
    assert answer["loaded"] == [True, True]
    assert answer["launched"] == ["_staged_write_kernel", "_rms_norm_kernel", "_rms_norm_kernel"]
    assert answer["compiled by launches"] == []


def test_the_loader_uses_a_list_and_adds_to_it(answer):
    assert answer["loader"] == ["_staged_write_kernel", "_rms_norm_kernel", "_rms_norm_kernel"]
    assert answer["listed"] == ["_staged_write_kernel", "no_such_kernel", "_rms_norm_kernel"]


def test_triton_finds_the_entries_without_the_list(answer):
    assert answer["same entries"]
    assert answer["new entries"] == []


def test_host_code_has_the_same_name_on_every_machine_that_runs_it(answer):
    (name,) = answer["names of host code"]
    assert os.uname().machine in name


def test_a_broken_entry_is_compiled_again(answer):
    assert not answer["broken loads"]
    assert answer["broken compiles"]
    assert answer["repaired loads"]


def test_another_gpu_has_other_entries(answer):
    assert answer["another target"]


def test_only_what_runs_is_stored(answer):
    assert ".ptx" not in answer["stored"]
    assert ".cubin" in answer["stored"]
