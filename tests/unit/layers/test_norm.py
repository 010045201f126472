import pytest
import torch

from octavo.layers.norm import LayerNorm, NoNorm, OffsetRMSNorm, RMSNorm
from support.layer_context import layer_context


def test_norm_and_sum():
    norm = RMSNorm(layer_context(), 6, eps=1e-3)
    norm.weight.data.copy_(torch.arange(1.0, 7.0))
    x, residual = torch.randn(2, 4, 6)
    total = x + residual
    scale = torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-3)
    normed, new_residual = norm.add(x, residual.clone())
    torch.testing.assert_close(normed, total * scale * norm.weight)
    assert torch.equal(new_residual, total)
    torch.testing.assert_close(norm(total), normed)


def test_weight_has_the_models_dtype():
    assert RMSNorm(layer_context(dtype=torch.bfloat16), 6, 1e-5).weight.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_offset_norm_adds_one_in_float32(dtype):
    """1 + 0.001 is 1 in bfloat16; a model's norm is nearer to the sum than that."""
    norm = OffsetRMSNorm(layer_context(dtype=dtype), 6, eps=1e-6)
    weight = torch.tensor([0.001, -0.25, 0.0, 0.5, 2.0, -1.0]).to(dtype)
    assert norm.shard_shapes("weight") == [(6,)]
    norm.load_shard("weight", 0, weight)
    assert norm.weight.dtype == torch.float32
    assert norm.weight[0] > 1.0
    x, residual = torch.randn(2, 4, 6).to(dtype)
    total = x + residual
    scale = torch.rsqrt(total.float().square().mean(-1, keepdim=True) + 1e-6)
    expected = (total.float() * scale * (1.0 + weight.float())).to(dtype)
    normed, new_residual = norm.add(x, residual.clone())
    assert normed.dtype == dtype
    torch.testing.assert_close(normed, expected)
    assert torch.equal(new_residual, total)


@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm(bias):
    norm = LayerNorm(layer_context(), 6, eps=1e-3, bias=bias)
    for parameter in norm.parameters():
        parameter.data.normal_()
    x, residual = torch.randn(2, 4, 6)
    total = x + residual
    centred = total - total.mean(-1, keepdim=True)
    expected = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-3) * norm.weight
    if bias:
        expected = expected + norm.bias
    normed, new_residual = norm.add(x, residual)
    torch.testing.assert_close(normed, expected)
    assert torch.equal(new_residual, total)


def test_no_norm_is_the_sum():
    x, residual = torch.randn(2, 4, 6)
    assert torch.equal(NoNorm()(x), x)
    for out in NoNorm().add(x, residual):
        assert torch.equal(out, x + residual)
