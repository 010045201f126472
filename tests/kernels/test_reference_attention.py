"""The oracle of paged attention against dense attention written out."""

import pytest
import torch
import torch.nn.functional as F

from octavo.attention.interface import AttentionParams
from octavo.kernels.reference.attention import paged_attention
from support.attention_steps import make_step


def attend(step, layer, **options):
    batch = step.batch
    return paged_attention(
        step.q,
        step.kv,
        batch.query_start_loc,
        batch.seq_lens,
        step.rows,
        layer.scale,
        **options,
    )


def dense(step, row, num_kv_heads):
    """(q [Hq, n, D], k and v [Hkv, len, D]) of a row, pages put side by side."""
    batch = step.batch
    start, end = batch.query_start_loc[row : row + 2].tolist()
    length = int(batch.seq_lens[row])
    block_size = step.kv.shape[3]
    tokens = [
        step.kv[step.rows[row, at // block_size], :, :, at % block_size] for at in range(length)
    ]
    keys, values = torch.stack(tokens, dim=2)
    return step.q[start:end].transpose(0, 1), keys, values


LAYER = AttentionParams(scale=0.3, num_heads=4, num_kv_heads=2, head_size=8)


def test_equals_dense_causal_attention():
    step = make_step([1, 9, 5], [12, 9, 30], LAYER, 4)
    out = attend(step, LAYER)
    at = 0
    for row, count in enumerate([1, 9, 5]):
        q, keys, values = dense(step, row, 2)
        length = keys.shape[1]
        mask = torch.ones(count, length, dtype=torch.bool).tril(length - count)
        expected = F.scaled_dot_product_attention(
            q, keys, values, attn_mask=mask, scale=0.3, enable_gqa=True
        )
        got = out[at : at + count].view(count, 4, 8).transpose(0, 1)
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5)
        at += count


@pytest.mark.parametrize("window", [1, 3, 8, 100])
def test_window_counts_the_token_itself(window):
    step = make_step([6], [20], LAYER, 4)
    out = attend(step, LAYER, sliding_window=window).view(6, 4, 8)
    q, keys, values = dense(step, 0, 2)
    for index in range(6):
        at = 14 + index
        seen = slice(max(at - window + 1, 0), at + 1)
        scores = torch.einsum("hd,hkd->hk", q[:, index], keys[:, seen].repeat_interleave(2, 0))
        weights = torch.softmax(scores * 0.3, dim=-1)
        expected = torch.einsum("hk,hkd->hd", weights, values[:, seen].repeat_interleave(2, 0))
        torch.testing.assert_close(out[index], expected, atol=1e-6, rtol=1e-5)


def test_soft_cap_and_sinks():
    step = make_step([1], [7], LAYER, 4)
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0])
    out = attend(step, LAYER, soft_cap=0.7, sinks=sinks).view(4, 8)
    q, keys, values = dense(step, 0, 2)
    for head in range(4):
        scores = 0.7 * torch.tanh(keys[head // 2] @ q[head, 0] * 0.3 / 0.7)
        weights = torch.exp(scores) / (torch.exp(scores).sum() + torch.exp(sinks[head]))
        expected = weights @ values[head // 2]
        torch.testing.assert_close(out[head], expected, atol=1e-6, rtol=1e-5)


def test_rows_without_tokens_are_skipped():
    step = make_step([2, 0, 1], [5, 0, 3], LAYER, 4)
    assert torch.isfinite(attend(step, LAYER)).all()
