"""Attention within texts: each as if it were alone."""

import itertools

import numpy as np
import pytest
import torch

from octavo.attention.encoder import TextAttention
from octavo.attention.interface import EncoderParams
from octavo.kernels.cpu.texts import text_kernels

LENGTHS = ([1], [5, 5, 5], [3, 17, 4, 1, 33, 32, 31, 5, 64, 70], list(range(1, 41)))


def alone(qkv, heads, bias, reach=None):
    """One text by matrix products."""
    q, k, v = qkv.view(qkv.shape[0], 3, heads, -1).permute(1, 2, 0, 3).double()
    scores = q @ k.transpose(1, 2) * 0.3
    if bias is not None:
        at = torch.arange(qkv.shape[0])
        scores += bias[:, at - at[:, None] + (bias.shape[1] - 1) // 2]
    if reach is not None:
        at = torch.arange(qkv.shape[0])
        scores.masked_fill_((at - at[:, None]).abs() > reach, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(0, 1).flatten(1).float()


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("head_size", [8, 32, 48])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("reach", [None, 0, 6, 40])
@pytest.mark.parametrize("native", [False, True])
def test_each_text_as_if_alone(lengths, head_size, biased, reach, native, monkeypatch):
    monkeypatch.setattr("octavo.attention.encoder._BAND_QUERIES", 16)
    torch.manual_seed(len(lengths))
    heads = 3
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    qkv = torch.randn(int(starts[-1]), 3 * heads * head_size)
    bias = torch.randn(heads, 2 * 80 - 1) if biased else None
    if native:
        kernels = text_kernels()
        if kernels is None:
            pytest.skip("there is no compiler")
        out = kernels.attention(qkv, torch.from_numpy(starts), heads, 0.3, bias, reach)
    else:
        params = EncoderParams(scale=0.3, num_heads=heads, head_size=head_size, reach=reach)
        out = TextAttention(starts, heads, torch.device("cpu"))(qkv, params, bias)
    for begin, end in itertools.pairwise(starts):
        expected = alone(qkv[begin:end], heads, bias, reach)
        assert (out[begin:end] - expected).abs().max() < 2e-5


@pytest.mark.parametrize("reach", [None, 7])
def test_company_changes_no_bit_of_the_native_result(reach):
    kernels = text_kernels()
    if kernels is None:
        pytest.skip("there is no compiler")
    qkv = torch.randn(90, 3 * 2 * 32)
    starts = torch.tensor([0, 7, 40, 90], dtype=torch.int32)
    together = kernels.attention(qkv, starts, 2, 0.2, None, reach)
    one = torch.tensor([0, 33], dtype=torch.int32)
    text = qkv[7:40].contiguous()
    assert torch.equal(kernels.attention(text, one, 2, 0.2, None, reach), together[7:40])
