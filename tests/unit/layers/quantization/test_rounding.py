"""Online quantization: as near as its codes allow, and exact where they can be."""

import pytest
import torch

from octavo.checkpoints.group_codes import INT8, INT8_SYMMETRIC, INT8_WIDE
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
    step = (groups.amax(-1) - groups.amin(-1)) / (255 if way == "int8" else 15)
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
    step = (weight.amax(-1) - weight.amin(-1)) / 255
    assert ((back.amin(-1) - weight.amin(-1)).abs() <= 0.1 * step).all()
    assert ((back.amax(-1) - weight.amax(-1)).abs() <= 0.1 * step).all()


def test_weights_of_sixteen_steps_lose_nothing_in_4_bits():
    codes = torch.stack([torch.randperm(16).repeat(2) for _ in range(8)])
    weight = codes * 0.03 - 0.2
    torch.testing.assert_close(weights(round_to_int4(weight)), weight, rtol=1e-5, atol=1e-6)


def test_weights_of_sixteen_steps_lose_next_to_nothing_in_8_bits():
    """As those of a 4-bit file have: 255 steps from the least to the greatest are 15 times 17."""
    torch.manual_seed(0)
    codes = torch.stack([torch.randperm(16).repeat(2) for _ in range(8)])
    weight = (codes - 4 - 7 * torch.rand(8, 1)) * 0.03 * (0.1 + torch.rand(8, 1))
    rounded = round_to_int8(weight)
    assert rounded.form is INT8
    error = (weights(rounded) - weight).abs()
    step = (weight.amax(-1) - weight.amin(-1)) / 255
    assert (error.amax(-1) <= 0.2 * step).all()


@pytest.mark.parametrize("offset", [0.1, -1.0, 37.0])
def test_float16_numbers_add_little_to_the_error(offset):
    """Groups far from zero, too: what rounding takes from the minimum, the scale makes up for."""
    torch.manual_seed(0)
    weight = torch.randn(8, 64) * 0.02 * abs(offset) + offset
    rounded = round_to_int8(weight)
    assert rounded.form is INT8
    groups = weight.unflatten(-1, (-1, 32))
    step = (groups.amax(-1) - groups.amin(-1)) / 255
    error = (weights(rounded) - weight).abs().unflatten(-1, (-1, 32)).amax(-1)
    assert (error <= 0.6 * step).all()


@pytest.mark.parametrize("size", [1e-7, 1e-5, 1e6, 1e30])
def test_rows_that_float16_numbers_do_not_fit_have_float32_ones(size):
    torch.manual_seed(0)
    weight = torch.randn(4, 64)
    weight[2] *= size
    rounded = round_to_int8(weight)
    assert rounded.form is INT8_WIDE
    assert rounded.scales.dtype == rounded.minimums.dtype == "float32"
    step = (weight.amax(-1) - weight.amin(-1)) / 255
    assert ((weights(rounded) - weight).abs().amax(-1) <= 0.5001 * step).all()


def test_a_row_of_zeros_needs_no_wide_numbers():
    weight = torch.randn(4, 64)
    weight[1] = 0
    rounded = round_to_int8(weight)
    assert rounded.form is INT8
    assert not weights(rounded)[1].any()


def test_sixteen_bit_weights():
    weight = torch.randn(3, 32).bfloat16()
    assert torch.equal(weights(round_to_int8(weight)), weights(round_to_int8(weight.float())))


def test_symmetric_codes_are_met_again():
    """As those of a Q8_0 file."""
    codes = torch.stack([torch.randperm(255)[:32] - 127 for _ in range(8)])
    codes[:, 3] = 127
    weight = codes * torch.logspace(-6, 3, 8)[:, None]
    rounded = round_to_int8(weight)
    assert rounded.form is INT8_SYMMETRIC
    assert torch.equal(torch.from_numpy(rounded.codes).long(), codes)
