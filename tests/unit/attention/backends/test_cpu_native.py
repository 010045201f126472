import math

import pytest
import torch

from octavo.attention.backends.cpu_native import CPUNativeAttention
from octavo.kernels.cpu.attention import paged_attention as native_attention
from support.attention_steps import expected as expect
from support.attention_steps import make_setup, make_step, rows_of
from support.attention_steps import small_params as params

TOLERANCE = {"atol": 2e-6, "rtol": 2e-5}
pytestmark = pytest.mark.skipif(
    isinstance(native_attention(64), str), reason="the C kernels can't be built here"
)


def run(step, layer, block_size):
    backend = CPUNativeAttention(make_setup(layer, block_size, dtype=step.q.dtype))
    return backend.forward(step.q, step.kv, backend.build_metadata(step.batch), layer)


STEPS = {
    "one decode row": ([1], [37]),
    "first token": ([1], [1]),
    "decode rows of very different lengths": ([1] * 6, [3, 900, 20, 257, 512, 513]),
    "one prompt": ([33], [33]),
    "a later chunk": ([20], [77]),
    "decode and prefill": ([1, 1, 1, 30, 5], [12, 280, 33, 30, 21]),
    "drafts": ([4, 1, 3, 1], [40, 41, 3, 9]),
    "a padding row": ([1, 3, 0, 0], [9, 3, 0, 0]),
}


@pytest.mark.parametrize("soft_cap", [None, 0.5])
@pytest.mark.parametrize("block_size", [4, 16, 32])
@pytest.mark.parametrize("window", [None, 1, 7, 40])
@pytest.mark.parametrize("name", STEPS)
def test_equals_oracle(name, window, block_size, soft_cap):
    layer = params(window=window, soft_cap=soft_cap)
    step = make_step(*STEPS[name], layer, block_size, seed=len(name))
    torch.testing.assert_close(run(step, layer, block_size), expect(step, layer), **TOLERANCE)


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_size"),
    [(1, 1, 32), (9, 3, 64), (8, 1, 80), (4, 4, 128), (4, 1, 256), (2, 2, 96)],
)
def test_head_counts_and_sizes(num_heads, num_kv_heads, head_size):
    layer = params(num_heads, num_kv_heads, head_size)
    step = make_step([1, 1, 7, 30], [50, 3, 7, 90], layer, 8)
    torch.testing.assert_close(run(step, layer, 8), expect(step, layer), **TOLERANCE)


def test_every_layer_of_the_cache():
    layer = params()
    for index in range(3):
        step = make_step([1, 12], [30, 12], layer, 4, layer=index)
        torch.testing.assert_close(run(step, layer, 4), expect(step, layer), **TOLERANCE)


def test_a_token_depends_on_no_other_row_and_not_on_its_chunk():
    """Bit for bit: a prompt in one piece, its last token alone, and both beside other rows."""
    layer = params(9, 3, 64)
    whole = make_step([50], [50], layer, 16)
    together = run(whole, layer, 16)
    for first in (49, 40, 17):
        part, _ = rows_of(whole, [(0, 50 - first, 50)])
        assert torch.equal(run(part, layer, 16), together[first:])


def test_nan_is_not_hidden_and_stays_in_its_row():
    layer = params(head_size=32)
    step = make_step([1, 1, 12], [40, 17, 30], layer, 8)
    clean = run(step, layer, 8)
    step.q[1, 0, 5] = math.nan
    out = run(step, layer, 8)
    assert torch.isnan(out[1, :32]).all()
    others = [row for row in range(14) if row != 1]
    assert torch.equal(out[others], clean[others])


def test_what_it_cannot_do():
    sinks = torch.zeros(6)
    cases = [
        (params(sinks=sinks), {}, "no attention sinks"),
        (params(alibi_slopes=sinks), {}, "ALiBi"),
        (params(head_size=12), {}, "head size 12 is no multiple"),
        (params(), {"dtype": torch.bfloat16}, "in float32"),
    ]
    for layer, more, reason in cases:
        reasons = CPUNativeAttention.unsupported(make_setup(layer, 16, **more))
        assert any(reason in text for text in reasons), (reason, reasons)
    assert CPUNativeAttention.unsupported(make_setup(params(), 16)) == []
