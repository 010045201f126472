"""What FlashInfer is given, by wrappers in its place that attend as their plan says."""

from __future__ import annotations

import dataclasses
import sys
import types

import pytest
import torch

from octavo.attention.backends import flashinfer
from octavo.attention.backends.flashinfer import FlashInferAttention
from octavo.attention.interface import AttentionParams
from octavo.kernels.reference.attention import paged_attention
from support.attention_steps import make_setup, make_step

PARAMS = AttentionParams(scale=0.125, num_heads=8, num_kv_heads=2, head_size=64)


class Wrapper:
    """Attends, row by row, over the pages of the last plan."""

    made: list[type] = []  # noqa: RUF012 (emptied before every test)

    def __init__(self, workspace, layout, **options):
        assert layout == "HND"
        assert workspace.dtype is torch.uint8
        assert not workspace.any()
        self.made.append(type(self))
        self.options = options
        self.plans = 0

    def remember(self, query_starts, page_starts, pages, last_page_lens, shape, options):
        for tensor in (query_starts, page_starts, last_page_lens):
            assert tensor.device.type == "cpu"
            assert tensor.dtype is torch.int32
        assert pages.dtype is torch.int32
        assert len(pages) == page_starts[-1]
        assert len(query_starts) == len(page_starts) == len(last_page_lens) + 1
        self.given = query_starts, page_starts, pages, last_page_lens
        self.shape, self.how = shape, options
        self.plans += 1

    def run(self, q, kv, *, out):
        assert q.shape == out.shape
        assert q.shape[0] == self.given[0][-1]
        window, cap = self.how["window_left"], self.how["logits_soft_cap"]
        for row, last in enumerate(self.given[3].tolist()):
            first, end = self.given[0][row : row + 2].tolist()
            low, high = self.given[1][row : row + 2].tolist()
            keys, values = kv[self.given[2][low:high].long()].unbind(1)
            length = (high - low - 1) * self.shape[3] + last
            # [Hkv, tokens, D]: a page holds tokens of one head after another.
            keys, values = (
                x.transpose(0, 1).reshape(self.shape[1], -1, self.shape[2])[:, :length]
                for x in (keys, values)
            )
            group = self.shape[0] // self.shape[1]
            keys, values = (x.repeat_interleave(group, 0) for x in (keys, values))
            scores = torch.einsum("qhd,hkd->hqk", q[first:end], keys) * self.how["sm_scale"]
            if cap:
                scores = cap * torch.tanh(scores / cap)
            place = torch.arange(length)
            own = place[length - (end - first) :, None]
            hidden = place > own
            if window >= 0:
                hidden |= place < own - window
            weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
            out[first:end] = torch.einsum("hqk,hkd->qhd", weights, values)


class Decode(Wrapper):
    def plan(self, page_starts, pages, last_page_lens, *shape, **options):
        one_each = torch.arange(len(last_page_lens) + 1, dtype=torch.int32)
        self.remember(one_each, page_starts, pages, last_page_lens, shape, options)


class Prefill(Wrapper):
    def plan(self, query_starts, page_starts, pages, last_page_lens, *shape, causal, **options):
        assert causal
        self.remember(query_starts, page_starts, pages, last_page_lens, shape, options)


@pytest.fixture
def library(monkeypatch):
    module = types.ModuleType("flashinfer")
    module.BatchDecodeWithPagedKVCacheWrapper = Decode
    module.BatchPrefillWithPagedKVCacheWrapper = Prefill
    monkeypatch.setitem(sys.modules, "flashinfer", module)
    Wrapper.made.clear()
    return module


def expected(step, params):
    return paged_attention(
        step.q,
        step.kv,
        step.batch.query_start_loc,
        step.batch.seq_lens,
        step.rows,
        params.scale,
        params.sliding_window,
        params.soft_cap,
        None,
    )


@pytest.mark.parametrize("block_size", [16, 32])
@pytest.mark.parametrize(
    ("queries", "lengths"),
    [
        ([1], [1]),
        ([1, 1, 1], [16, 17, 100]),
        ([5], [5]),
        ([1, 1, 3, 40, 1], [33, 16, 64, 40, 7]),
        ([16, 2], [16, 31]),
    ],
)
@pytest.mark.parametrize(("window", "soft_cap"), [(None, None), (7, 30.0)])
def test_attention(library, queries, lengths, block_size, window, soft_cap):
    params = dataclasses.replace(PARAMS, sliding_window=window, soft_cap=soft_cap)
    step = make_step(queries, lengths, params, block_size)
    backend = FlashInferAttention(make_setup(params, block_size))
    metadata = backend.build_metadata(step.batch)
    for _ in range(2):
        out = backend.forward(step.q, step.kv, metadata, params)
        torch.testing.assert_close(out, expected(step, params))


def test_pages_and_lengths_of_the_rows(library):
    step = make_step([1, 1, 20], [16, 33, 50], PARAMS, 16)
    metadata = FlashInferAttention(make_setup(PARAMS, 16)).build_metadata(step.batch)
    decode, prefill = metadata.decode, metadata.prefill
    assert (decode.first_token, decode.num_tokens) == (0, 2)
    assert (prefill.first_token, prefill.num_tokens) == (2, 20)
    assert decode.query_starts.tolist() == [0, 1, 2]
    assert prefill.query_starts.tolist() == [0, 20]
    assert decode.page_starts.tolist() == [0, 1, 4]
    assert prefill.page_starts.tolist() == [0, 4]
    assert decode.last_page_lens.tolist() == [16, 1]
    assert prefill.last_page_lens.tolist() == [2]
    assert decode.pages.tolist() == [*step.rows[0, :1].tolist(), *step.rows[1, :3].tolist()]
    assert prefill.pages.tolist() == step.rows[2, :4].tolist()


def test_layers_share_a_plan_and_steps_take_turns(library):
    step = make_step([1, 1], [20, 40], PARAMS, 16)
    backend = FlashInferAttention(make_setup(PARAMS, 16))
    first = backend.build_metadata(step.batch)
    second = backend.build_metadata(step.batch)
    for metadata in (first, first, second):
        backend.forward(step.q, step.kv, metadata, PARAMS)
    (one,), (other,) = first.planned.values(), second.planned.values()
    assert one is not other
    assert (one.decode.plans, other.decode.plans, one.prefill.plans) == (1, 1, 0)
    assert one.decode.options["use_tensor_cores"]
    # The third step has the objects of the first; a layer that attends otherwise has its own.
    third = backend.build_metadata(step.batch)
    backend.forward(step.q, step.kv, third, PARAMS)
    assert next(iter(third.planned.values())) is one
    assert Wrapper.made == [Decode, Prefill] * 2
    capped = dataclasses.replace(PARAMS, soft_cap=20.0)
    out = backend.forward(step.q, step.kv, third, capped)
    assert len(third.planned) == 2
    torch.testing.assert_close(out, expected(step, capped))


def test_tokens_of_no_row_are_zero(library):
    step = make_step([1, 4], [20, 40], PARAMS, 16)
    backend = FlashInferAttention(make_setup(PARAMS, 16))
    padded = torch.cat([step.q, torch.full((3, *step.q.shape[1:]), torch.nan)])
    out = backend.forward(padded, step.kv, backend.build_metadata(step.batch), PARAMS)
    assert not out[5:].any()
    torch.testing.assert_close(out[:5], expected(step, PARAMS))


def setup_of(params=PARAMS, capability=(9, 0), dtype=torch.bfloat16, **change):
    setup = make_setup(params, 16, dtype=dtype)
    return dataclasses.replace(setup, device=torch.device("cuda"), capability=capability, **change)


def test_served_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(flashinfer.importlib.util, "find_spec", lambda name: object())
    assert FlashInferAttention.unsupported(setup_of()) == []
    monkeypatch.setattr(flashinfer.importlib.util, "find_spec", lambda name: None)
    assert "not installed" in "; ".join(FlashInferAttention.unsupported(setup_of()))


@pytest.mark.parametrize(
    ("setup", "word"),
    [
        (make_setup(PARAMS, 16, dtype=torch.float16), "CUDA device"),
        (setup_of(capability=(7, 5)), "8.0"),
        (setup_of(dtype=torch.float32), "float32"),
        (setup_of(kv_dtype=torch.float16), "a cache of torch.float16"),
        (setup_of(dataclasses.replace(PARAMS, head_size=80)), "head size 80"),
        (setup_of(dataclasses.replace(PARAMS, sinks=torch.zeros(8))), "sinks"),
        (setup_of(dataclasses.replace(PARAMS, alibi_slopes=torch.zeros(8))), "ALiBi"),
        (setup_of(batch_invariant=True), "order of sums"),
    ],
)
def test_refused_with_the_reason(setup, word):
    assert word in "; ".join(FlashInferAttention.unsupported(setup))
