"""Pooling on a GPU: the vectors and scores of the CPU, for an encoder and for a decoder."""

import numpy as np
import pytest
import torch

from octavo import LLM, PoolingParams
from support.tiny_poolers import ids_of, save_pooler

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

PROMPTS = [ids_of(length, seed) for seed, length in enumerate((1, 2, 17, 18, 40, 90, 5))]


def results(folder, device, **options):
    llm = LLM(str(folder), device=device, dtype="float32", max_num_seqs=8, **options)
    try:
        raw = PoolingParams(use_activation=False)
        return [each.outputs.data for each in llm.encode(PROMPTS, raw, use_tqdm=False)]
    finally:
        llm.shutdown()


@pytest.mark.parametrize(
    ("name", "head", "options"),
    [
        ("bert", "embed", {"pooler_config": {"pooling_type": "MEAN"}}),
        ("mpnet", "embed", {}),
        ("roberta", "classify", {}),
        ("bert", "token_classify", {}),
        ("modernbert", "embed", {}),
        ("modernbert-biases", "classify", {}),
        ("qwen3", "embed", {}),
    ],
)
def test_a_gpu_gives_what_a_cpu_gives(name, head, options, tmp_path, monkeypatch):
    monkeypatch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "0")
    # Heads that Triton's attention kernels are made for.
    shape = {"head_dim": 64} if name == "qwen3" else {}
    save_pooler(name, tmp_path, head, **shape)
    for ours, theirs in zip(
        results(tmp_path, "cuda", **options), results(tmp_path, "cpu", **options), strict=True
    ):
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() <= 2e-2 * max(1.0, float(np.abs(theirs).max()))
