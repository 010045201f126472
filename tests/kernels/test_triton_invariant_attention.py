"""Batch-invariant attention: right, and the same bits for a token wherever it is computed."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch

from octavo.attention.interface import AttentionParams
from support.attention_steps import rows_of
from support.interpreter import require_interpreter

require_interpreter()
cases = pytest.importorskip("support.kernel_cases", exc_type=ImportError)
invariant_map = pytest.importorskip("octavo.kernels.invariant_map", exc_type=ImportError)
invariant_attention = pytest.importorskip("octavo.kernels.invariant_attention")
TritonInvariant = pytest.importorskip("octavo.attention.backends.triton_invariant").TritonInvariant

MIXED = [(1, 40), (30, 70), (2, 100), (1, 1), (1, 130)]


@pytest.fixture(autouse=True)
def _short_segments(monkeypatch):
    """The interpreter is slow: what takes a thousand keys elsewhere takes a hundred here."""
    for module in (invariant_map, invariant_attention):
        monkeypatch.setattr(module, "SEGMENT", 64)


@pytest.fixture(autouse=True)
def _poisoned_memory(monkeypatch):
    """What nobody wrote is not a number, or no place in memory."""
    empty = torch.empty

    def poisoned(*args, **kwargs):
        made = empty(*args, **kwargs)
        return made.fill_(float("nan") if made.is_floating_point() else 1 << 30)

    monkeypatch.setattr(torch, "empty", poisoned)


def make_params(heads, window=None, soft_cap=None, sinks=False):
    generator = torch.Generator().manual_seed(1)
    sink = torch.randn(heads[0], generator=generator) if sinks else None
    return AttentionParams(heads[2] ** -0.5, *heads, window, soft_cap, sink)


@pytest.mark.parametrize(
    ("rows", "padding", "params"),
    [
        (MIXED, 3, make_params((8, 2, 32))),
        (MIXED, 0, make_params((4, 1, 64), window=33, soft_cap=5.0, sinks=True)),
        ([(1, 270)], 1, make_params((4, 4, 16))),
        ([(2, 193), (1, 9)], 0, make_params((6, 2, 24), sinks=True)),
        ([(1, 160), (1, 130)], 0, make_params((4, 2, 16), window=70)),
    ],
)
def test_matches_reference(rows, padding, params):
    step = cases.make_step([q for q, _ in rows], [n for _, n in rows], params, 16)
    out = run(step, params, padding=padding)
    batch = step.batch
    expected = cases.paged_attention(
        step.q, step.kv, batch.query_start_loc, batch.seq_lens, step.rows, params.scale,
        params.sliding_window, params.soft_cap, params.sinks,
    )  # fmt: skip
    cases.assert_close(out, expected, torch.float32)


def run(step, params, *, padding=0, divided=None):
    """The step's output; `divided`: whether some row's segments must be, or not be, separate."""
    batch = step.batch
    if padding:
        last = batch.query_start_loc[-1:].expand(padding)
        batch = dataclasses.replace(
            batch,
            query_start_loc=torch.cat([batch.query_start_loc, last]),
            seq_lens=torch.cat([batch.seq_lens, batch.seq_lens.new_zeros(padding)]),
            slots=torch.cat([batch.slots, batch.slots[:1].expand(padding)]),
        )
    setup = cases.make_setup(params, 16, dtype=step.q.dtype, batch_invariant=True)
    backend = TritonInvariant(setup)
    metadata = backend.build_metadata(batch)
    for _ in range(1 + (padding > 0)):  # layers share the map, whose counters return to zero
        out = backend.forward(step.q, step.kv, metadata, params)
    assert torch.isfinite(out).all()
    (found,) = metadata.maps.values()
    assert int(found.counters[1]) == 0
    if divided is not None:
        tasks = found.tasks.view(-1, 16)[: int(found.counters[0])]
        assert bool((tasks[:, 7] >= 0).any()) == divided
    return out


KINDS = [
    (torch.float32, make_params((4, 2, 16))),
    (torch.float16, make_params((8, 2, 32), soft_cap=5.0, sinks=True)),
    (torch.float16, make_params((6, 2, 24), window=30)),
]


@pytest.mark.parametrize(("dtype", "params"), KINDS)
def test_a_row_alone_and_in_a_mix(dtype, params):
    """Alone a long row is divided among programs, in the mix it is not."""
    rows = [(1, 200), (1, 75), (37, 70), (1, 30), (5, 150)]
    step = cases.make_step([q for q, _ in rows], [n for _, n in rows], params, 16, dtype=dtype)
    mix = run(step, params)
    for row, (query_len, seq_len) in enumerate(rows):
        alone, tokens = rows_of(step, [(row, query_len, seq_len)])
        long = query_len == 1 and seq_len > 128 and params.sliding_window is None
        assert torch.equal(run(alone, params, divided=long or None), mix[tokens])
    backwards, tokens = rows_of(step, [(row, *rows[row]) for row in (4, 2, 0, 3, 1)])
    assert torch.equal(run(backwards, params, padding=2), mix[tokens])


@pytest.mark.parametrize(("dtype", "params"), KINDS)
def test_a_prompt_whole_in_chunks_and_token_by_token(dtype, params):
    length, first = 170, 124
    step = cases.make_step([length - first], [length], params, 16, dtype=dtype)
    whole = run(step, params)
    for cuts in ((first, 125, 150, length), (first, 128, 129, 169, length)):
        parts = []
        for begin, end in itertools.pairwise(cuts):
            chunk, _ = rows_of(step, [(0, end - begin, end)])
            parts.append(run(chunk, params))
        assert torch.equal(torch.cat(parts), whole)
    for position in (124, 127, 128, 169):
        token, _ = rows_of(step, [(0, 1, position + 1)])
        assert torch.equal(run(token, params), whole[position - first : position - first + 1])


def test_parts_that_find_no_room_are_computed_by_one_program(monkeypatch):
    params = make_params((4, 2, 16))
    step = cases.make_step([1, 1], [300, 290], params, 16)
    divided = run(step, params, divided=True)
    monkeypatch.setattr(invariant_map, "_PARTS_PER_PROGRAM", 1)
    assert torch.equal(run(step, params, divided=False), divided)


def test_other_rows_do_not_reach_a_row():
    """Not even where they are not numbers."""
    params = make_params((4, 2, 16))
    step = cases.make_step([1, 1], [100, 90], params, 16)
    expected = run(step, params)
    step.kv[step.rows[1, 0].long()] = float("nan")
    backend = TritonInvariant(cases.make_setup(params, 16, batch_invariant=True))
    out = backend.forward(step.q, step.kv, backend.build_metadata(step.batch), params)
    assert torch.equal(out[0], expected[0])
    assert out[1].isnan().all()


def test_it_serves_batch_invariant_mode_only():
    params = make_params((4, 2, 16))
    plain, mode = (cases.make_setup(params, 16, batch_invariant=on) for on in (False, True))
    assert "it is for batch-invariant mode" in TritonInvariant.unsupported(plain)
    assert "it is for batch-invariant mode" not in TritonInvariant.unsupported(mode)
    reason = "its order of sums depends on the rows of a step"
    assert reason in cases.TritonAttention.unsupported(mode)
    assert reason not in cases.TritonAttention.unsupported(plain)
