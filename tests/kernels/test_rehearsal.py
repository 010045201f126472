"""`octavo compile` without a GPU: the whole start is rehearsed, and every kernel compiles."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch

from octavo.kernels.compile_manifest import KernelManifest

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        torch.version.cuda is None or importlib.util.find_spec("triton") is None,
        reason="needs the CUDA build of torch, though no GPU",
    ),
]
CONFIG = {
    "architectures": ["MistralForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 2048,
    "max_position_embeddings": 2048,
    "sliding_window": 64,
    "dtype": "bfloat16",
}
FLAGS = (
    "--load-format dummy --skip-tokenizer-init --max-num-seqs 4 --max-model-len 256 "
    "--max-num-batched-tokens 128 --cudagraph-capture-sizes 1 4 --target sm_90a"
)


def test_a_cache_for_a_gpu_that_is_not_here(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}
    env.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-m", "octavo.cli.main", "compile", str(tmp_path), *FLAGS.split()]
    command += ["--output", str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert "only when it is met" not in done.stdout
    (path,) = (tmp_path / "cache").glob("*-sm90/manifests/*.json")
    manifest = msgspec.json.decode(path.read_bytes(), type=KernelManifest)
    names = {kernel.name for kernel in manifest.kernels}
    assert manifest.complete
    assert {"_paged_decode_kernel", "_paged_prefill_kernel", "_rms_norm_kernel"} <= names
    assert len(names) >= 12
