from __future__ import annotations

import pytest
import torch

from support.interpreter import require_interpreter

require_interpreter()
cases = pytest.importorskip("support.kernel_cases", exc_type=ImportError)
table = pytest.importorskip("octavo.kernels.stream_gemm_table", exc_type=ImportError)
GemmConfig, GemvConfig = cases.GemmConfig, cases.GemvConfig


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("shape", "config", "bias"),
    [
        ((1, 70, 512), GemvConfig(8, 1), False),
        ((1, 64, 1024), GemvConfig(4, 2), True),
        ((3, 70, 200), GemmConfig(16, 32, 64, 1, 4, 3), True),
        ((20, 70, 200), GemmConfig(16, 32, 64, 2, 4, 3), False),
        ((5, 128, 256), GemmConfig(16, 32, 64, 4, 4, 3), False),
        ((33, 120, 320), GemmConfig(64, 32, 64, 8, 4, 3), True),
        ((16, 64, 64), GemmConfig(16, 64, 64, 1, 4, 3), False),
        ((70, 200, 640), GemmConfig(32, 32, 64, 2, 4, 3), True),
    ],
)
def test_matches_reference(shape, config, bias, dtype):
    cases.check_gemm(shape, config, "cpu", dtype, bias=bias)


def test_plan_by_number_of_rows():
    plan = table.plan_for(4096, 12288)
    assert isinstance(plan.config(1), GemvConfig)
    assert [plan.config(rows).block_m for rows in (2, 16, 17, 32, 33, 64)] == [
        16,
        16,
        32,
        32,
        64,
        64,
    ]
    assert plan.config(65) is None
    assert plan.config(0) is None
    assert table.plan_for(6144, 4096).config(8) is None


def test_plan_of_a_shape_nobody_measured():
    plan = table.plan_for(1000, 512)
    assert plan.config(1) == GemvConfig(block_n=4, num_warps=2)
    assert plan.config(20).block_m == 32
    assert plan.config(33) is None
    assert table.plan_for(1000, 500).config(1) is None
