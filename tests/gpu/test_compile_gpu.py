"""torch.compile on a CUDA device: the same tokens, with CUDA graphs on and off."""

from __future__ import annotations

import random

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
FAMILIES = ("qwen3", "gemma2")  # layers of fused kernels; layers with functions of PyTorch's
WAYS = {
    "graphs": {},
    "few graphs": {"cudagraph_capture_sizes": [4]},
    "chunks": {"max_num_batched_tokens": 32, "max_num_seqs": 8},
}


def generate(folder, **options):
    from octavo import LLM, SamplingParams  # noqa: PLC0415 (collected without a GPU too)

    rng = random.Random(0)
    prompts = [[rng.randrange(2, 200) for _ in range(n)] for n in (1, 5, 17, 64, 90, 3)]
    llm = LLM(
        model=str(folder),
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=256,
        gpu_memory_utilization=0.2,
        **({"max_num_seqs": 16} | options),
    )
    try:
        outputs = llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts],
            SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True, detokenize=False),
            use_tqdm=False,
        )
        return [output.outputs[0].token_ids for output in outputs]
    finally:
        llm.shutdown()


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_those_of_the_model_as_written(family, tmp_path, monkeypatch):
    from support.tiny_models import save_tiny  # noqa: PLC0415 (imports transformers)

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "0")
    folder = tmp_path / "model"
    save_tiny(family, folder, head_dim=64)
    expected = generate(folder, enforce_eager=True)
    for way, options in WAYS.items():
        torch._dynamo.reset()
        assert generate(folder, optimization_level=1, **options) == expected, way
    assert (tmp_path / "inductor").exists()
