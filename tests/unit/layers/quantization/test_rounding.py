"""Online quantization: as near as its codes allow, and exact where they can be."""

import pytest
import torch

from octavo.kernels.reference.packed import TorchPacked
from octavo.layers.quantization.rounding import round_to_int4, round_to_int8

WAYS = {"int8": round_to_int8, "int4": round_to_int4}


def weights(codes):
    return TorchPacked().pack(codes).weights(slice(None))


@pytest.mark.parametrize("way", WAYS)
def test_errors_are_half_a_step(way):
    torch.manual_seed(0)
    weight = torch.randn(9, 96) * torch.logspace(-6, 3, 9)[:, None]
    groups = weight.unflatten(-1, (-1, 32))
    step = (
        groups.abs().amax(-1) / 127 if way == "int8" else (groups.amax(-1) - groups.amin(-1)) / 15
    )
    error = (weights(WAYS[way](weight)) - weight).abs().unflatten(-1, (-1, 32)).amax(-1)
    assert (error <= 0.5001 * step).all()
    assert (error >= 0.2 * step).any()


@pytest.mark.parametrize("way", WAYS)
def test_zeros_and_constants(way):
    weight = torch.zeros(2, 64)
    weight[1] = -0.75
    torch.testing.assert_close(weights(WAYS[way](weight)), weight, rtol=1e-6, atol=0)


def test_the_extremes_are_kept():
    torch.manual_seed(0)
    weight = torch.randn(4, 32)
    back = weights(round_to_int4(weight))
    torch.testing.assert_close(back.amin(-1), weight.amin(-1))
    torch.testing.assert_close(back.amax(-1), weight.amax(-1))
    back = weights(round_to_int8(weight))
    torch.testing.assert_close(back.abs().amax(-1), weight.abs().amax(-1))


def test_weights_of_sixteen_steps_lose_nothing_in_4_bits():
    codes = torch.stack([torch.randperm(16).repeat(2) for _ in range(8)])
    weight = codes * 0.03 - 0.2
    torch.testing.assert_close(weights(round_to_int4(weight)), weight, rtol=1e-5, atol=1e-6)


def test_sixteen_bit_weights():
    weight = torch.randn(3, 32).bfloat16()
    assert torch.equal(weights(round_to_int8(weight)), weights(round_to_int8(weight.float())))
