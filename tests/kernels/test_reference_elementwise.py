"""The reference kernels against the formulas they implement, in float64 and element by element."""

import math

import pytest
import torch

from octavo.kernels.reference.elementwise import (
    embedding,
    fused_add_rms_norm,
    qk_norm_rope_cache,
    rms_norm,
    silu_and_mul,
)

SHAPES = [(1, 1), (1, 576), (3, 17), (65, 130)]


def naive_norm(x, weight, eps):
    x = x.double()
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight.double()


@pytest.mark.parametrize("shape", SHAPES)
def test_rms_norm(shape):
    x, weight = torch.randn(shape), torch.randn(shape[1])
    expected = naive_norm(x, weight, 1e-5)
    torch.testing.assert_close(rms_norm(x, weight, 1e-5).double(), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_fused_add_rms_norm(shape):
    x, residual, weight = torch.randn(shape), torch.randn(shape), torch.randn(shape[1])
    total = x + residual
    normed, new_residual = fused_add_rms_norm(x.clone(), residual, weight, 1e-6)
    assert torch.equal(new_residual, total)
    expected = naive_norm(total, weight, 1e-6)
    torch.testing.assert_close(normed.double(), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("rows", "inner"), [(1, 1), (5, 33), (64, 1536)])
def test_silu_and_mul(rows, inner):
    x = torch.randn(rows, 2 * inner)
    before = x.clone()
    gate, up = x[:, :inner].double(), x[:, inner:].double()
    expected = gate / (1 + torch.exp(-gate)) * up
    torch.testing.assert_close(silu_and_mul(x).double(), expected, atol=1e-6, rtol=1e-5)
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_embedding(dtype):
    weight = torch.randn(11, 5)
    ids = torch.tensor([10, 0, 3, 3], dtype=dtype)
    assert torch.equal(embedding(ids, weight), weight[[10, 0, 3, 3]])


def naive_rotate(head, angle_cos, angle_sin, rotary_dim, is_neox):
    """Rotate one head by the definition."""
    out = head.clone()
    half = rotary_dim // 2
    for pair in range(half):
        i, j = (pair, pair + half) if is_neox else (2 * pair, 2 * pair + 1)
        cos, sin = angle_cos[pair], angle_sin[pair]
        out[i] = head[i] * cos - head[j] * sin
        out[j] = head[j] * cos + head[i] * sin
    return out


@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_size", "rotary_dim"),
    [(4, 2, 8, 8), (9, 3, 16, 16), (3, 1, 12, 6), (2, 2, 10, 4)],
)
def test_qk_norm_rope_cache(num_heads, num_kv_heads, head_size, rotary_dim, is_neox, norms):
    torch.manual_seed(0)
    num_tokens, block_size, num_blocks, max_pos = 7, 4, 6, 40
    qkv = torch.randn(num_tokens, (num_heads + 2 * num_kv_heads) * head_size)
    angles = torch.rand(max_pos, rotary_dim // 2) * 2 * math.pi
    cos_sin = torch.cat([angles.cos(), angles.sin()], dim=-1)
    positions = torch.tensor([5, 6, 7, 0, 39, 11, 3])
    slots = torch.tensor([9, 10, 23, 4, -1, 5, -1])
    weights = (torch.rand(head_size) + 0.5, torch.rand(head_size) + 0.5) if norms else (None, None)
    cache = torch.full((num_blocks, 3, 2, num_kv_heads, block_size, head_size), float("nan"))
    page = cache[:, 1]

    heads = qkv.view(num_tokens, -1, head_size).clone()
    q = qk_norm_rope_cache(
        qkv, *weights, 1e-6, cos_sin, positions, slots, page, rotary_dim, is_neox
    )

    assert q.shape == (num_tokens, num_heads, head_size)
    assert q.stride()[1:] == (head_size, 1)
    written = torch.zeros(cache.shape, dtype=torch.bool)
    for token in range(num_tokens):
        cos, sin = cos_sin[positions[token]].chunk(2)
        for head in range(num_heads + num_kv_heads):
            value = heads[token, head]
            if norms:
                value = naive_norm(value, weights[head >= num_heads], 1e-6).float()
            value = naive_rotate(value, cos, sin, rotary_dim, is_neox)
            if head < num_heads:
                torch.testing.assert_close(q[token, head], value, atol=1e-5, rtol=1e-5)
            elif slots[token] >= 0:
                block, offset = divmod(int(slots[token]), block_size)
                stored = page[block, 0, head - num_heads, offset]
                torch.testing.assert_close(stored, value, atol=1e-5, rtol=1e-5)
        if slots[token] >= 0:
            block, offset = divmod(int(slots[token]), block_size)
            values = heads[token, num_heads + num_kv_heads :]
            assert torch.equal(page[block, 1, :, offset], values)
            written[block, 1, :, :, offset] = True
    # Nothing else in the cache was touched, in this layer or another.
    assert torch.equal(torch.isnan(cache), ~written)


def test_all_padding_writes_nothing():
    cache = torch.full((2, 2, 1, 4, 8), float("nan"))
    qkv = torch.randn(3, 4 * 8)
    cos_sin = torch.cat([torch.ones(4, 4), torch.zeros(4, 4)], dim=-1)
    nowhere = torch.full((3,), -1)
    positions = torch.zeros(3, dtype=torch.int64)
    q = qk_norm_rope_cache(qkv, None, None, 0.0, cos_sin, positions, nowhere, cache, 8, True)
    assert torch.isnan(cache).all()
    assert torch.isfinite(q).all()


def test_bfloat16_is_rotated_in_float32():
    torch.manual_seed(1)
    qkv = torch.randn(50, 3 * 8).bfloat16()
    angles = torch.rand(60, 4) * 6
    cos_sin = torch.cat([angles.cos(), angles.sin()], dim=-1)
    positions, slots = torch.arange(50), torch.arange(50)
    exact = qkv.float()
    small, wide = torch.zeros(7, 2, 1, 8, 8).bfloat16(), torch.zeros(7, 2, 1, 8, 8)
    q = qk_norm_rope_cache(qkv, None, None, 0.0, cos_sin, positions, slots, small, 8, True)
    expected = qk_norm_rope_cache(exact, None, None, 0.0, cos_sin, positions, slots, wide, 8, True)
    assert torch.equal(q, expected.bfloat16())
    assert torch.equal(small, wide.bfloat16())
