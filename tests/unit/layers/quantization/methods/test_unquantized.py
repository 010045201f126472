import dataclasses

import torch
from torch import nn

from octavo.kernels.op import reference_kernels
from octavo.kernels.reference.gemm import PlainLinear, linear
from octavo.layers.linear import ReplicatedLinear
from octavo.layers.quantization.interface import QUANT_METHODS, LinearShape, ParamDims
from octavo.layers.quantization.methods.unquantized import Unquantized
from support.layer_context import layer_context


def test_registered_as_none():
    assert QUANT_METHODS.get("none") is Unquantized


def test_parameters_and_their_dimensions():
    layer = nn.Module()
    method = Unquantized().linear_method(reference_kernels(), "x")
    shape = LinearShape(3, 5, True, torch.float32, torch.device("cpu"))
    dims = method.create_weights(layer, shape)
    assert dims["weight"] == ParamDims(output=0, input=1)
    assert dims["bias"] == ParamDims(output=0)
    assert layer.weight.shape == (5, 3)
    assert layer.bias.shape == (5,)


def test_a_repacked_weight_is_given_up():
    """Or kept, where the kernels work on the parameter itself."""

    class Packed:
        nbytes = 60

        def __init__(self, weight, bias):
            self.weight = weight.clone()

        def __call__(self, x):
            return x @ self.weight.t()

    packing = dataclasses.replace(reference_kernels(), prepare_linear=Packed)
    plain = dataclasses.replace(
        reference_kernels(), prepare_linear=lambda w, b: PlainLinear(linear, w, b)
    )
    for kernels, kept, nbytes in ((packing, False, 60), (plain, True, 0)):
        layer = ReplicatedLinear(layer_context(kernels=kernels), 3, 5)
        weight = torch.randn(5, 3)
        layer.load_shard("weight", 0, weight)
        layer.process_after_load()
        assert (layer.weight is not None) == kept
        assert layer.method.nbytes == nbytes
        x = torch.randn(2, 3)
        torch.testing.assert_close(layer(x), x @ weight.t())
