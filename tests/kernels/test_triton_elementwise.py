from __future__ import annotations

import pytest
import torch

from support.interpreter import require_interpreter

require_interpreter()
cases = pytest.importorskip("support.kernel_cases", exc_type=ImportError)

DTYPES = [torch.float32, torch.float16]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "width"), [(1, 1), (3, 100), (5, 1024)])
def test_norms(num_rows, width, dtype):
    cases.check_norms(num_rows, width, "cpu", dtype, pdl=False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "width"), [(1, 3), (3, 1030)])
def test_silu_and_mul(num_rows, width, dtype):
    cases.check_activation(num_rows, width, "cpu", dtype, pdl=False)


def test_no_rows_launch_nothing():
    empty = torch.empty(0, 16)
    assert cases.norm.rms_norm(empty, torch.ones(16), 1e-6).shape == (0, 16)
    assert cases.activation.silu_and_mul(empty).shape == (0, 8)


@pytest.mark.parametrize(("num_tokens", "width"), [(1, 7), (5, 2050)])
def test_embedding(num_tokens, width):
    cases.check_embedding(num_tokens, width, "cpu", torch.float32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("heads", "rotary_dim", "is_neox", "has_norm", "num_tokens"),
    [
        ((8, 2, 16), 16, True, True, 5),
        ((6, 2, 24), 8, False, True, 3),
        ((2, 1, 16), 8, True, False, 261),
        ((3, 1, 128), 128, True, True, 2),
        ((5, 1, 40), 40, False, False, 1),
        ((4, 2, 16), 2, True, False, 3),
    ],
)
def test_qk_norm_rope_cache(heads, rotary_dim, is_neox, has_norm, num_tokens, dtype):
    cases.check_rotary(heads, rotary_dim, is_neox, has_norm, num_tokens, "cpu", dtype, pdl=False)
