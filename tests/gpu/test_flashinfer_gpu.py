"""The flashinfer package, if it is installed, over the cases of our own kernels."""

from __future__ import annotations

import dataclasses
import importlib.util

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(
        importlib.util.find_spec("flashinfer") is None, reason="flashinfer is not installed"
    ),
]
cases = pytest.importorskip("support.kernel_cases", exc_type=ImportError)
from octavo.attention.backends.flashinfer import FlashInferAttention  # noqa: E402
from octavo.attention.interface import AttentionParams  # noqa: E402
from support.attention_steps import make_setup  # noqa: E402

ROWS = {
    "one token": [(1, 1)],
    "decode": [(1, 9000)] + [(1, 37 * n + 1) for n in range(31)],
    "prompts": [(400, 400), (1, 1), (130, 3000)],
    "mixed": [(1, 400), (1, 1), (2, 3000), (1000, 1000), (64, 2000), (1, 16), (16, 16)],
}


# Every other head size, window or soft cap is a kernel that the package compiles first.
@pytest.mark.parametrize("rows", list(ROWS))
@pytest.mark.parametrize(
    ("heads", "window", "soft_cap"),
    [((32, 8, 128), None, None), ((16, 8, 128), 100, 30.0)],
)
def test_attention(rows, heads, window, soft_cap):
    """The cache holds NaN wherever no row may read."""
    num_heads, num_kv_heads, head_size = heads
    params = AttentionParams(
        scale=head_size**-0.5,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        sliding_window=window,
        soft_cap=soft_cap,
    )
    setup = dataclasses.replace(
        make_setup(params, 16, dtype=torch.bfloat16, device="cuda"),
        capability=torch.cuda.get_device_capability(),
    )
    assert FlashInferAttention.unsupported(setup) == []
    queries, lengths = ([row[part] for row in ROWS[rows]] for part in (0, 1))
    step = cases.make_step(queries, lengths, params, 16, dtype=torch.bfloat16, device="cuda")
    expected = cases.paged_attention(
        step.q.double(),
        step.kv.double(),
        step.batch.query_start_loc,
        step.batch.seq_lens,
        step.rows,
        params.scale,
        window,
        soft_cap,
        None,
    )
    backend = FlashInferAttention(setup)
    for _ in range(3):  # more steps than the backend has plans
        metadata = backend.build_metadata(step.batch)
        for _ in range(2):
            out = backend.forward(step.q, step.kv, metadata, params)
            cases.assert_close(out, expected, torch.bfloat16)


def test_engine(tmp_path_factory):
    """Greedy tokens of a half-precision model are those of the Triton backend."""
    from support.backend_engine import (  # noqa: PLC0415 (slow)
        check_tokens_beside_triton,
    )

    folder = tmp_path_factory.mktemp("tiny-qwen3")
    check_tokens_beside_triton("flashinfer", folder)
