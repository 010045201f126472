from __future__ import annotations

import pytest
import torch

from support.interpreter import require_interpreter

require_interpreter()
cases = pytest.importorskip("support.kernel_cases", exc_type=ImportError)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("num_rows", [1, 300])
def test_matches_reference(num_rows):
    cases.check_inputs(num_rows, "cpu")


@pytest.mark.parametrize(("num_rows", "padding"), [(1, 0), (3, 5), (300, 20)])
def test_commit(num_rows, padding):
    cases.check_commit(num_rows, padding, "cpu")
