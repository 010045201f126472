"""Linear products against float64, for every row count that is treated differently."""

import pytest
import torch

from octavo.kernels.reference import gemm
from octavo.kernels.reference.gemm import PackedLinear, PlainLinear, linear, prepare_linear

ROWS = [1, 2, 3, 15, 16, 17, 24, 33, 64, 65, 80, 200, 256, 257, 513]
SHAPES = [(1, 1), (37, 53), (64, 128), (96, 1536), (576, 576)]


def exact(x, weight, bias):
    out = x.double() @ weight.double().t()
    return out if bias is None else out + bias.double()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_prepared_linear(shape, bias):
    torch.manual_seed(0)
    weight = torch.randn(shape) * 0.1
    b = torch.randn(shape[0]) if bias else None
    product = prepare_linear(weight, b)
    for rows in ROWS:
        x = torch.randn(rows, shape[1])
        before = x.clone()
        out = product(x)
        assert out.shape == (rows, shape[0])
        torch.testing.assert_close(out.double(), exact(x, weight, b), atol=1e-4, rtol=1e-4)
        assert torch.equal(x, before)


def test_no_rows():
    product = prepare_linear(torch.randn(5, 7), None)
    assert product(torch.randn(0, 7)).shape == (0, 5)


def test_strided_rows():
    weight = torch.randn(12, 16)
    wide = torch.randn(9, 40)
    product = prepare_linear(weight, None)
    expected = exact(wide[:, 3:19], weight, None)
    torch.testing.assert_close(product(wide[:, 3:19]).double(), expected, atol=1e-4, rtol=1e-4)


packs = pytest.mark.skipif(not gemm._has_packing(), reason="torch without oneDNN")


@packs
def test_a_row_does_not_depend_on_the_others():
    torch.manual_seed(0)
    for shape in [(960, 576), (576, 1536), (64, 4096)]:
        product = prepare_linear(torch.randn(shape) * 0.02, None)
        assert isinstance(product, PackedLinear)
        x = torch.randn(300, shape[1])
        together = product(x)
        for rows in ROWS[:-2]:
            assert torch.equal(product(x[7 : 7 + rows]), together[7 : 7 + rows]), (shape, rows)


@packs
def test_nan_in_one_row_stays_there():
    product = prepare_linear(torch.randn(20, 30), None)
    x = torch.randn(20, 30)
    x[4, 7] = float("nan")
    bad = torch.isnan(product(x)).any(dim=1)
    assert bad.tolist() == [row == 4 for row in range(20)]


@packs
def test_few_row_counts_reach_the_library():
    product = prepare_linear(torch.randn(8, 8), None)
    assert isinstance(product, PackedLinear)
    seen = set()
    original = product.product

    def record(x):
        seen.add(x.shape[0])
        return original(x)

    product.product = record
    for rows in range(1, 1200):
        product(torch.zeros(rows, 8))
    assert len(seen) <= 36
    assert max(seen) == 256


@packs
def test_packed_weight_is_a_copy():
    weight = torch.randn(64, 32)
    product = prepare_linear(weight, None)
    assert product.nbytes == 64 * 32 * 4
    x = torch.randn(3, 32)
    before = product(x)
    weight.zero_()
    assert torch.equal(product(x), before)


def test_other_dtypes_stay_plain():
    weight = torch.randn(16, 32).bfloat16()
    bias = torch.randn(16).bfloat16()
    product = prepare_linear(weight, bias)
    assert isinstance(product, PlainLinear)
    assert product.nbytes == 0
    x = torch.randn(3, 32).bfloat16()
    assert torch.equal(product(x), linear(x, weight, bias))
