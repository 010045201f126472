"""The FlashAttention packages that are installed, over the cases of our own kernels."""

from __future__ import annotations

import dataclasses

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
cases = pytest.importorskip("support.kernel_cases", exc_type=ImportError)
from octavo.attention.backends import flash_attn  # noqa: E402
from octavo.attention.interface import AttentionParams  # noqa: E402
from support.attention_steps import make_setup  # noqa: E402

ROWS = {
    "one token": [(1, 1)],
    "decode": [(1, 9000)] + [(1, 37 * n + 1) for n in range(31)],
    "drafts": [(4, 1400), (16, 170), (1, 16), (16, 16), (3, 3000)],
    "mixed": [(1, 400), (300, 700), (2, 3000), (1000, 1000), (1, 1), (64, 2000), (130, 130)],
}
INSTALLED = [library for library in flash_attn.LIBRARIES if library.installed]


@pytest.fixture(params=INSTALLED or [None], ids=lambda each: each.name if each else "none")
def library(request, monkeypatch):
    if request.param is None:
        pytest.skip("no FlashAttention package is installed")
    monkeypatch.setattr(flash_attn, "LIBRARIES", (request.param,))
    return request.param


def attend(setup, step, batch, params):
    """The result of a step, computed twice from one metadata as two layers would."""
    backend = flash_attn.FlashAttention(setup)
    metadata = backend.build_metadata(batch)
    first, second = (backend.forward(step.q, step.kv, metadata, params) for _ in range(2))
    return first, second


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("rows", "heads", "window", "soft_cap", "sinks"),
    [
        ("one token", (32, 8, 128), None, None, False),
        ("decode", (32, 8, 128), None, None, False),
        ("drafts", (32, 8, 128), None, None, False),
        ("mixed", (32, 8, 128), None, None, False),
        ("mixed", (16, 8, 128), 100, None, True),
        ("mixed", (9, 3, 64), None, 30.0, False),
    ],
)
def test_attention(library, rows, heads, window, soft_cap, sinks, dtype):
    """The cache holds NaN wherever no row may read."""
    num_heads, num_kv_heads, head_size = heads
    params = AttentionParams(
        scale=head_size**-0.5,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        sliding_window=window,
        soft_cap=soft_cap,
        sinks=torch.randn(num_heads, device="cuda") if sinks and library.has_sinks else None,
    )
    block_size = max(16, library.page_multiple)
    setup = dataclasses.replace(
        make_setup(params, block_size, dtype=dtype, device="cuda"),
        capability=torch.cuda.get_device_capability(),
    )
    if reasons := flash_attn.FlashAttention.unsupported(setup):
        pytest.skip("; ".join(reasons))
    queries, lengths = ([row[part] for row in ROWS[rows]] for part in (0, 1))
    step = cases.make_step(queries, lengths, params, block_size, dtype=dtype, device="cuda")
    expected = cases.paged_attention(
        step.q.double(),
        step.kv.double(),
        step.batch.query_start_loc,
        step.batch.seq_lens,
        step.rows,
        params.scale,
        window,
        soft_cap,
        None if params.sinks is None else params.sinks.double(),
    )
    for out in attend(setup, step, step.batch, params):
        cases.assert_close(out, expected, dtype)


@pytest.mark.parametrize("eager", [True, False])
def test_engine(library, tmp_path_factory, eager):
    """Greedy tokens of a bfloat16 model, graphs on and off, are those of the Triton backend."""
    from support.backend_engine import (  # noqa: PLC0415 (slow)
        check_tokens_beside_triton,
    )

    if library.page_multiple > 1:
        pytest.skip("pages of 256 tokens: the kernels are tested above")
    folder = tmp_path_factory.mktemp("tiny-qwen3")
    check_tokens_beside_triton("flash_attn", folder, enforce_eager=eager)
