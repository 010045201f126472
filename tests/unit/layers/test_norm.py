import torch

from octavo.layers.norm import RMSNorm
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
