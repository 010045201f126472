"""The C kernels of encoders beside PyTorch's functions."""

import pytest
import torch
import torch.nn.functional as F

from octavo.kernels.cpu.texts import text_kernels


@pytest.fixture(scope="module")
def kernels():
    found = text_kernels()
    if found is None:
        pytest.skip("there is no compiler")
    return found


@pytest.mark.parametrize("shape", [(1, 1), (3, 16), (7, 50), (70, 384)])
def test_norm_of_a_sum(kernels, shape):
    torch.manual_seed(shape[1])
    x, residual = torch.randn(2, *shape) * 3 + 5
    weight, bias = torch.randn(2, shape[1])
    ours = kernels.add_layer_norm(x, residual, weight, bias, 1e-5)
    expected = F.layer_norm(x + residual, shape[1:], weight, bias, 1e-5)
    assert (ours - expected).abs().max() < 1e-4


@pytest.mark.parametrize("count", [1, 15, 16, 17, 40_000])
def test_gelu(kernels, count):
    x = torch.linspace(-9, 9, count)
    expected = F.gelu(x)
    assert (kernels.gelu(x.clone()) - expected).abs().max() < 2e-6


def test_gelu_of_the_extremes(kernels):
    x = torch.tensor([float("inf"), -float("inf"), float("nan"), 200.0, -200.0, 0.0])
    ours = kernels.gelu(x.clone())
    assert ours[0] == float("inf")
    assert ours[2].isnan()
    assert ours[3:].tolist() == [200.0, 0.0, 0.0]
