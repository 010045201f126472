from __future__ import annotations

import pytest
import torch

from support.interpreter import require_interpreter

require_interpreter()
cases = pytest.importorskip("support.kernel_cases", exc_type=ImportError)
GemmConfig, GemvConfig = cases.GemmConfig, cases.GemvConfig


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("shape", "config", "bias", "gated"),
    [
        ((1, 70, 512), GemvConfig(8, 1), False, False),
        ((1, 64, 1024), GemvConfig(4, 2), True, False),
        ((1, 60, 256), GemvConfig(16, 1), False, True),
        ((3, 70, 200), GemmConfig(16, 32, 64, 1, 4, 3), True, False),
        ((20, 70, 200), GemmConfig(16, 32, 64, 2, 4, 3), False, False),
        ((5, 128, 256), GemmConfig(16, 32, 64, 4, 4, 3), False, True),
        ((33, 120, 320), GemmConfig(64, 32, 64, 8, 4, 3), True, False),
        ((16, 64, 64), GemmConfig(16, 64, 64, 1, 4, 3), False, True),
    ],
)
def test_matches_reference(shape, config, bias, gated, dtype):
    cases.check_gemm(shape, config, "cpu", dtype, bias=bias, gated=gated)
