import pytest
import torch
import torch.nn.functional as F
import transformers

from octavo.layers.activation import ACTIVATIONS, SiluAndMul, activation, gated_activation
from octavo.types.errors import ConfigError
from support.layer_context import layer_context


def test_first_half_is_the_gate():
    x = torch.randn(3, 10)
    expected = F.silu(x[:, :5]) * x[:, 5:]
    torch.testing.assert_close(SiluAndMul(layer_context())(x), expected)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gated_with_every_function(name):
    x = torch.randn(3, 8)
    out = gated_activation(layer_context(), name)(x.clone())
    torch.testing.assert_close(out, transformers.activations.ACT2FN[name](x[:, :4]) * x[:, 4:])


def test_unknown_names_are_refused():
    with pytest.raises(ConfigError, match="hidden_act='quadratic'"):
        activation(layer_context(), "quadratic")
