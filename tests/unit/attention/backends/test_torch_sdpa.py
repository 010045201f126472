import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from octavo.attention.backends.torch_sdpa import TorchSDPA
from octavo.attention.interface import AttentionParams
from support.attention_steps import expected as expect
from support.attention_steps import make_setup, make_step
from support.attention_steps import small_params as params

TOLERANCE = {"atol": 2e-6, "rtol": 2e-5}


def run(step, layer, block_size):
    backend = TorchSDPA(make_setup(layer, block_size, dtype=step.q.dtype))
    return backend.forward(step.q, step.kv, backend.build_metadata(step.batch), layer)


STEPS = {
    "one decode row": ([1], [37]),
    "first token": ([1], [1]),
    "decode rows": ([1] * 5, [1, 16, 17, 300, 4]),
    "decode rows of very different lengths": ([1] * 6, [3, 900, 20, 257, 512, 513]),
    "one prompt": ([33], [33]),
    "a prompt one longer than a window": ([8], [8]),
    "a later chunk": ([20], [77]),
    "prompts of one class": ([9, 12, 16], [9, 12, 16]),
    "prompts and chunks": ([9, 40, 2, 64], [9, 55, 300, 64]),
    "decode and prefill": ([1, 1, 1, 30, 5], [12, 280, 33, 30, 21]),
    "drafts": ([4, 1, 3, 1], [40, 41, 3, 9]),
    "a padding row": ([1, 3, 0, 0], [9, 3, 0, 0]),
}


@pytest.mark.parametrize("block_size", [4, 16])
@pytest.mark.parametrize("window", [None, 1, 7, 40])
@pytest.mark.parametrize("name", STEPS)
def test_equals_oracle(name, window, block_size):
    layer = params(window=window)
    step = make_step(*STEPS[name], layer, block_size, seed=len(name))
    torch.testing.assert_close(run(step, layer, block_size), expect(step, layer), **TOLERANCE)


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_size"), [(1, 1, 8), (9, 3, 64), (8, 1, 80), (4, 4, 24)]
)
def test_head_counts_and_sizes(num_heads, num_kv_heads, head_size):
    layer = params(num_heads, num_kv_heads, head_size)
    step = make_step([1, 1, 7, 30], [50, 3, 7, 90], layer, 8)
    torch.testing.assert_close(run(step, layer, 8), expect(step, layer), **TOLERANCE)


@pytest.mark.parametrize("window", [None, 7])
@pytest.mark.parametrize(
    "more",
    [
        {"soft_cap": 0.5},
        {"alibi_slopes": torch.tensor([0.5, 0.25, 0.125, 0.1, 0.03, 0.001])},
        {"soft_cap": 2.0, "alibi_slopes": torch.linspace(0.01, 0.6, 6)},
    ],
    ids=["cap", "alibi", "both"],
)
@pytest.mark.parametrize("name", STEPS)
def test_caps_and_biases(name, more, window):
    layer = params(window=window, **more)
    step = make_step(*STEPS[name], layer, 8, seed=len(name))
    torch.testing.assert_close(run(step, layer, 8), expect(step, layer), **TOLERANCE)


def test_scores_are_computed_in_parts(monkeypatch):
    monkeypatch.setattr("octavo.attention.backends.torch_sdpa._MAX_SCORES", 3000)
    layer = params(soft_cap=0.5)
    step = make_step([50, 9], [50, 30], layer, 4)
    torch.testing.assert_close(run(step, layer, 4), expect(step, layer), **TOLERANCE)


def test_layers_of_one_group_may_differ_in_window():
    full, sliding = params(), params(window=5)
    step = make_step([1, 6], [30, 20], full, 4)
    backend = TorchSDPA(make_setup(full, 4))
    metadata = backend.build_metadata(step.batch)
    for layer in (full, sliding, full):
        out = backend.forward(step.q, step.kv, metadata, layer)
        torch.testing.assert_close(out, expect(step, layer), **TOLERANCE)


def test_every_layer_of_the_cache():
    layer = params()
    for index in range(3):
        step = make_step([1, 12], [30, 12], layer, 4, layer=index)
        torch.testing.assert_close(run(step, layer, 4), expect(step, layer), **TOLERANCE)


def test_large_groups_are_cut(monkeypatch):
    monkeypatch.setattr("octavo.attention.backends.torch_sdpa._MAX_GATHER_BYTES", 40_000)
    layer = params()
    step = make_step([1] * 9 + [5] * 4, [60] * 13, layer, 4)
    torch.testing.assert_close(run(step, layer, 4), expect(step, layer), **TOLERANCE)


def test_bfloat16():
    layer = params(head_size=32)
    step = make_step([1, 1, 12], [40, 17, 30], layer, 8, dtype=torch.bfloat16)
    out = run(step, layer, 8)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), expect(step, layer).float(), atol=2e-2, rtol=2e-2)


def test_tokens_of_a_padded_step_are_zero():
    layer = params()
    step = make_step([1, 1], [9, 12], layer, 4)
    step.q = torch.cat([step.q, torch.full_like(step.q, float("nan"))])
    out = run(step, layer, 4)
    assert out.shape[0] == 4
    assert torch.isfinite(out[:2]).all()
    assert (out[2:] == 0).all()


def test_decode_result_does_not_depend_on_neighbours():
    layer = params(9, 3, 64)
    alone = make_step([1], [200], layer, 16, seed=1)
    mixed = make_step([1, 1, 1, 8], [200, 90, 256, 8], layer, 16, seed=1)
    # The first row's sequence and query in both steps.
    for table, source in ((mixed.rows[0], alone.rows[0]),):
        mixed.kv[table[:13].long()] = alone.kv[source[:13].long()]
    mixed.q[0] = alone.q[0]
    assert torch.equal(run(mixed, layer, 16)[0], run(alone, layer, 16)[0])


class CountCalls(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("query_len", [1, 3, 100])
def test_number_of_calls_does_not_grow_with_rows(query_len):
    layer = params()
    counts = []
    for num_rows in (8, 64):
        lengths = [query_len + row % 17 * 9 for row in range(num_rows)]
        step = make_step([query_len] * num_rows, lengths, layer, 16, poison=False)
        backend = TorchSDPA(make_setup(layer, 16))
        metadata = backend.build_metadata(step.batch)
        backend.forward(step.q, step.kv, metadata, layer)
        with CountCalls() as calls:
            backend.forward(step.q, step.kv, metadata, layer)
        counts.append(calls.count)
    assert counts[0] == counts[1]
    assert counts[0] < 50


def test_number_of_calls_is_bounded_by_the_spread_of_lengths():
    layer = params(2, 1, 8)
    lengths = [1 + 31 * row for row in range(64)]  # up to 1954 keys: four classes
    step = make_step([1] * 64, lengths, layer, 16, poison=False)
    backend = TorchSDPA(make_setup(layer, 16))
    metadata = backend.build_metadata(step.batch)
    backend.forward(step.q, step.kv, metadata, layer)
    assert len(metadata.groups[None]) == 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sinks": torch.zeros(6)}, "sinks"),
    ],
)
def test_unsupported(change, reason):
    layer = AttentionParams(scale=1.0, num_heads=6, num_kv_heads=2, head_size=16, **change)
    assert any(reason in text for text in TorchSDPA.unsupported(make_setup(layer, 16)))
    assert not TorchSDPA.unsupported(make_setup(params(), 16))


def test_unsupported_cache_dtype():
    setup = make_setup(params(), 16, dtype=torch.float8_e4m3fn)
    assert any("float8" in text for text in TorchSDPA.unsupported(setup))
