"""Operators that stand for callables."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from octavo.kernels.op import reference_kernels
from octavo.kernels.opaque import CallTable, opaque_kernels

OPS = torch.ops.octavo


@pytest.fixture
def table():
    return CallTable()


def test_kernels_behind_operators_compute_the_same(table):
    kernels, opaque = reference_kernels(), opaque_kernels(reference_kernels(), table)
    torch.manual_seed(0)
    x, residual, weight = torch.randn(5, 8), torch.randn(5, 8), torch.randn(8)
    matrix, bias = torch.randn(6, 8), torch.randn(6)
    with table.in_use():
        assert torch.equal(opaque.rms_norm(x, weight, 1e-5), kernels.rms_norm(x, weight, 1e-5))
        want = kernels.fused_add_rms_norm(x, residual.clone(), weight, 1e-5)
        into = residual.clone()
        got = opaque.fused_add_rms_norm(x, into, weight, 1e-5)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
        assert got[1] is into
        assert torch.equal(opaque.silu_and_mul(x), kernels.silu_and_mul(x))
        ids = torch.tensor([3, 0, 3], dtype=torch.int32)
        assert torch.equal(opaque.embedding(ids, matrix), kernels.embedding(ids, matrix))
        linear = opaque.prepare_linear(matrix, bias)
        bound = kernels.prepare_linear(matrix, bias)
        assert torch.equal(linear(x), bound(x))
        assert linear.nbytes == bound.nbytes


def test_a_sum_that_is_returned_apart_is_written_over_the_residual(table):
    def apart(x, residual, weight, eps):
        return x * 2, x + residual

    kernels = dataclasses.replace(reference_kernels(), fused_add_rms_norm=apart)
    residual = torch.ones(2, 3)
    with table.in_use():
        opaque = opaque_kernels(kernels, table)
        out, total = opaque.fused_add_rms_norm(torch.ones(2, 3), residual, torch.ones(3), 0.1)
    assert total is residual
    assert (residual == 2).all()
    assert (out == 2).all()


def test_a_table_is_in_use_within_its_block_only(table):
    x, which = torch.ones(1, 2), table.add(lambda x: x + 1)
    other = CallTable()
    of_other = other.add(lambda x: x + 2)
    with table.in_use():
        assert OPS.rows(x, 2, which)[0, 0] == 2
        with other.in_use():
            assert OPS.rows(x, 2, of_other)[0, 0] == 3
        assert OPS.rows(x, 2, which)[0, 0] == 2
    with pytest.raises(LookupError):
        OPS.rows(x, 2, which)


def test_results_without_data_have_the_shapes_of_real_ones():
    x, weight = torch.empty(5, 8, device="meta"), torch.empty(8, device="meta")
    which = torch.tensor(0)
    assert OPS.rows(x, 3, which).shape == (5, 3)
    assert OPS.rms_norm(x.t(), weight, 1e-5, which).is_contiguous()
    assert OPS.add_rms_norm(x, x, weight, 1e-5, which).shape == (5, 8)
    assert OPS.attention(x, torch.empty(5, device="meta"), 4, which).shape == (5, 4)
    ids = torch.empty(7, dtype=torch.int32, device="meta")
    assert OPS.lookup(ids, torch.empty(9, 4, device="meta"), which).shape == (7, 4)
