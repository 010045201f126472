import torch
import torch.nn.functional as F

from octavo.layers.activation import SiluAndMul
from support.layer_context import layer_context


def test_first_half_is_the_gate():
    x = torch.randn(3, 10)
    expected = F.silu(x[:, :5]) * x[:, 5:]
    torch.testing.assert_close(SiluAndMul(layer_context())(x), expected)
