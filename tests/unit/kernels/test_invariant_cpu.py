"""Of the CPU's batch-invariant kernels a row's result is a function of that row, bit for bit."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from octavo.kernels import invariant_cpu
from octavo.kernels.op import kernels_for, reference_kernels
from octavo.types.errors import ConfigError

PARTS = [(0, 1), (7, 1), (3, 2), (90, 5), (40, 60), (10, 90), (99, 1)]


@pytest.fixture(autouse=True, params=[1, 3])
def _threads(request):
    torch.manual_seed(0)
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def kernels():
    try:
        return kernels_for("cpu", batch_invariant=True)
    except ConfigError as error:
        pytest.skip(str(error))


def assert_rows_stand_alone(function, x):
    together = function(x)
    for first, count in PARTS:
        part = slice(first, first + count)
        assert torch.equal(function(x[part].contiguous()), together[part]), (first, count)


@pytest.mark.parametrize("shape", [(576, 1536), (37, 100), (1, 4096), (130, 576)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_linears(shape, has_bias, kernels):
    weight, bias = torch.randn(shape), torch.randn(shape[0]) if has_bias else None
    x = torch.randn(100, shape[1])
    assert_rows_stand_alone(kernels.prepare_linear(weight, bias), x)
    assert torch.equal(kernels.linear(x, weight, bias), kernels.prepare_linear(weight, bias)(x))


@pytest.mark.parametrize("width", [576, 100, 4098])
def test_norms_and_gates(width, kernels):
    x, weight = torch.randn(100, width), torch.randn(width)
    assert_rows_stand_alone(lambda rows: kernels.rms_norm(rows, weight, 1e-5), x)
    assert_rows_stand_alone(
        lambda rows: kernels.fused_add_rms_norm(rows, rows.clone(), weight, 1e-5)[0], x
    )
    assert_rows_stand_alone(kernels.silu_and_mul, x)


@pytest.mark.parametrize("width", [640, 100, 50_000])
@pytest.mark.parametrize("function", [F.gelu, torch.tanh, F.silu])
def test_elementwise_functions(width, function, kernels):
    x = torch.randn(100, width)
    whole = kernels.elementwise(function)
    assert_rows_stand_alone(whole, x)
    torch.testing.assert_close(whole(x), function(x))
    assert whole(x[:0]).shape == (0, width)
    assert reference_kernels().elementwise(function) is function


def test_without_the_c_kernels_it_is_refused(monkeypatch):
    monkeypatch.setattr(invariant_cpu, "cpu_kernels", reference_kernels)
    with pytest.raises(ConfigError, match="batch_invariant=True needs octavo's C kernels"):
        kernels_for("cpu", batch_invariant=True)
