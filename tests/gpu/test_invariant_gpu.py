"""Batch-invariant mode on a CUDA device: kernels and engine, equal bit for bit."""

from __future__ import annotations

import random

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
cases = pytest.importorskip("support.kernel_cases", exc_type=ImportError)
from octavo.kernels.invariant_gemm import (  # noqa: E402
    InvariantConfig,
    invariant_gemm,
    invariant_tile,
)
from octavo.kernels.op import kernels_for  # noqa: E402

DTYPES = [torch.bfloat16, torch.float16, torch.float32]
ROWS = [1, 2, 16, 17, 32, 33, 64, 65, 100, 128, 129, 256, 257, 700, 2048]
WEIGHTS = [(4096, 4096), (6144, 4096), (4096, 12288), (1024, 3072), (49152, 576), (1000, 200)]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_rows", [1, 33, 200, 1000])
@pytest.mark.parametrize(("num_out", "inner"), [(1000, 3072), (4096, 200), (70, 576)])
def test_gemm_matches_reference(num_rows, num_out, inner, dtype):
    config = invariant_tile(num_rows, num_out, inner, dtype.itemsize, 132)
    shape = (num_rows, num_out, inner)
    cases.check_invariant_gemm(shape, config, "cuda", dtype, bias=num_rows == 33, pdl=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_out", "inner"), WEIGHTS)
def test_a_row_is_the_same_among_any_number(num_out, inner, dtype):
    """Every tile the kernel set would choose, and rows at several places in it."""
    weight = torch.randn(num_out, inner, device="cuda").to(dtype) / inner**0.5
    bias = torch.randn(num_out, device="cuda").to(dtype)
    x = torch.randn(ROWS[-1], inner, device="cuda").to(dtype)
    linear = kernels_for("cuda", batch_invariant=True).prepare_linear(weight, bias)
    together = linear(x)
    for count in ROWS:
        last = ROWS[-1] - count
        for first in sorted({0, min(7, last), last}):
            part = slice(first, first + count)
            assert torch.equal(linear(x[part]), together[part]), (count, first)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_all_tiles_agree(dtype):
    """Also those that no shape is given today."""
    weight = torch.randn(640, 4096, device="cuda").to(dtype) / 64
    x = torch.randn(300, 4096, device="cuda").to(dtype)
    tiles = [
        InvariantConfig(block_m, 64, step_n, block_k, 4, 3)
        for block_m in (16, 32, 64, 128)
        for step_n in (16, 32, 64)
        for block_k in (64, 128)
    ]
    tiles += [InvariantConfig(block_m, 128, 128, 64, 8, 3) for block_m in (64, 128, 256)]
    results = [invariant_gemm(x, weight, None, tile) for tile in tiles]
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("dtype", DTYPES)
def test_other_kernels(dtype):
    kernels = kernels_for("cuda", batch_invariant=True)
    heads, kv_heads, size = 12, 4, 80
    x = torch.randn(600, 4096, device="cuda").to(dtype)
    weight = torch.randn(4096, device="cuda").to(dtype)
    qkv = torch.randn(600, (heads + 2 * kv_heads) * size, device="cuda").to(dtype)
    norms = [torch.randn(size, device="cuda").to(dtype) for _ in "qk"]
    positions = torch.randint(0, 500, (600,), device="cuda")
    cos_sin = torch.randn(500, size, device="cuda")
    pages = torch.zeros(64, 2, kv_heads, 16, size, device="cuda", dtype=dtype)

    def rotate(part: slice) -> torch.Tensor:
        slots = torch.arange(600, device="cuda")[part]
        return kernels.qk_norm_rope_cache(
            qkv[part].clone(), *norms, 1e-6, cos_sin, positions[part], slots, pages, size, True
        )

    functions = {
        "norm": lambda part: kernels.rms_norm(x[part], weight, 1e-6),
        "add": lambda part: kernels.fused_add_rms_norm(x[part], x[part].clone(), weight, 1e-6)[0],
        "gate": lambda part: kernels.silu_and_mul(x[part]),
        "rotate": rotate,
    }
    for name, function in functions.items():
        together = function(slice(0, 600))
        for first, count in [(0, 1), (5, 1), (7, 30), (100, 256), (90, 257), (599, 1)]:
            part = slice(first, first + count)
            assert torch.equal(function(part), together[part]), (name, first, count)


VOCAB = 2049  # odd: rows of logits start at every alignment
PROMPTS = (1, 5, 17, 64, 90, 130, 300, 33, 700, 12)
WAYS = {
    "together": {},
    "eager": {"enforce_eager": True},
    "chunks of 64": {"max_num_batched_tokens": 64},
    "chunks of 300, one step": {"max_num_batched_tokens": 300, "async_scheduling": False},
    "no prefix cache, preempted": {"enable_prefix_caching": False, "num_gpu_blocks_override": 50},
}


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    from support.tiny_models import save_wide_qwen3  # noqa: PLC0415 (slow)

    folder = tmp_path_factory.mktemp("tiny-qwen3")
    save_wide_qwen3(folder, vocab_size=VOCAB, intermediate_size=704, num_hidden_layers=3)
    return folder


def run(model_dir, indexes, dtype, **options):
    """(request -> every logprob of it, preemptions) in batch-invariant mode, one batch."""
    from octavo import LLM, SamplingParams  # noqa: PLC0415 (collected without a GPU too)

    rng = random.Random(0)
    prompts = [[rng.randrange(1, VOCAB) for _ in range(n)] for n in PROMPTS]
    params = [
        SamplingParams(
            temperature=(0.0, 1.0)[i % 2],
            top_p=(1.0, 0.9)[i // 2 % 2],
            seed=i,
            max_tokens=24,
            logprobs=4,
            prompt_logprobs=1 if i % 3 == 0 else None,
            ignore_eos=True,
            detokenize=False,
        )
        for i in range(len(prompts))
    ]
    llm = LLM(
        model=str(model_dir),
        skip_tokenizer_init=True,
        batch_invariant=True,
        dtype=dtype,
        max_num_seqs=16,
        max_model_len=768,  # 48 blocks: fewer than the requests grow to together
        gpu_memory_utilization=0.2,
        disable_log_stats=False,
        **options,
    )
    try:
        found = {}
        for batch in indexes:
            outputs = llm.generate(
                [{"prompt_token_ids": prompts[i]} for i in batch],
                [params[i] for i in batch],
                use_tqdm=False,
            )
            for i, output in zip(batch, outputs, strict=True):
                places = [*output.outputs[0].logprobs, *(output.prompt_logprobs or [])]
                found[i] = [
                    {token: entry.logprob for token, entry in place.items()}
                    for place in places
                    if place is not None
                ]
        counted = {metric.name: metric for metric in llm.get_metrics()}
        return found, counted["octavo:num_preemptions"].value
    finally:
        llm.shutdown()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_logprobs_are_equal_bit_for_bit(model_dir, dtype):
    everyone = range(len(PROMPTS))
    alone, _ = run(model_dir, [[i] for i in everyone], dtype, enable_prefix_caching=False)
    for way, options in WAYS.items():
        found, preemptions = run(model_dir, [everyone], dtype, **options)
        different = [i for i in everyone if found[i] != alone[i]]
        assert not different, way
        assert (preemptions > 0) == ("preempted" in way)
