"""Codes of every packable GGUF type mean exactly the weights that the gguf package gives."""

import numpy as np
import pytest

from octavo.checkpoints.gguf_codes import CODE_FORMS, group_codes
from octavo.checkpoints.group_codes import Minimum
from support.codes import BLOCKS, dequantized, random_blocks, random_codes


def weights(codes):
    """scale * code + minimum, in the order in which the kernels compute it."""
    group = codes.form.group
    scales = np.repeat(codes.scales.astype(np.float32), group, axis=1)
    result = codes.codes.astype(np.float32) * scales
    if codes.form.minimum is Minimum.STORED:
        result += np.repeat(codes.minimums.astype(np.float32), group, axis=1)
    if codes.form.minimum is Minimum.MINUS_EIGHT_SCALES:
        result -= 8 * scales
    return result


@pytest.mark.parametrize("dtype", CODE_FORMS)
def test_exact(dtype):
    blocks = random_blocks(dtype, 5, 512)
    codes = group_codes(dtype, blocks)
    np.testing.assert_array_equal(weights(codes), dequantized(dtype, blocks))
    assert codes.shape == (5, 512)


@pytest.mark.parametrize("dtype", CODE_FORMS)
def test_the_arrays_are_those_of_the_form(dtype):
    codes, _ = random_codes(dtype, 3, 256)
    form = codes.form
    assert codes.codes.dtype == (np.uint8 if form.bits == 4 else np.int8)
    if form.bits == 4:
        assert codes.codes.max() == 15
    assert codes.scales.dtype.itemsize == form.number_bytes
    assert codes.scales.shape == (3, 256 // form.group)
    assert (codes.minimums is not None) == (form.minimum is Minimum.STORED)
    if codes.minimums is not None:
        assert codes.minimums.dtype == codes.scales.dtype
        assert codes.minimums.shape == codes.scales.shape


@pytest.mark.parametrize("dtype", ["Q4_1", "Q6_K"])
def test_a_part_of_a_weight(dtype):
    codes, whole = random_codes(dtype, 6, 512)
    part = codes.part(slice(1, 4), slice(64, 288))
    np.testing.assert_array_equal(weights(part), whole[1:4, 64:288])


def test_packed_takes_little_more_than_the_file():
    """But for codes of five and six bits, and the factors of K types, which are multiplied out."""
    for dtype, most in {"Q4_0": 1.0, "Q4_1": 1.0, "Q8_0": 1.0, "Q4_K": 1.34, "Q6_K": 1.53}.items():
        size, num_bytes = BLOCKS[dtype]
        stored = 64 * 1024 // size * num_bytes
        assert stored <= CODE_FORMS[dtype].num_bytes(64, 1024) <= most * stored


def test_the_last_outputs_are_padded():
    form = CODE_FORMS["Q4_1"]
    assert form.num_bytes(17, 64) == form.num_bytes(32, 64) == 2 * form.num_bytes(1, 64)
