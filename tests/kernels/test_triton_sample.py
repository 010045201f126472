from __future__ import annotations

import pytest
import torch

from support.interpreter import require_interpreter

require_interpreter()
cases = pytest.importorskip("support.kernel_cases", exc_type=ImportError)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(("num_rows", "num_tokens"), [(1, 1), (4, 9001), (7, 4096)])
def test_matches_reference(num_rows, num_tokens):
    cases.check_sampling(num_rows, num_tokens, "cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_greedy_with_check(dtype):
    cases.check_greedy_checked(4, 9001, dtype, "cpu")
