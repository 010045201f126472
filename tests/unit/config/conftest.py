"""Machines and models that the configuration tests resolve for."""

from __future__ import annotations

import pytest

from octavo.types.platform_info import PlatformInfo

GIB = 1 << 30

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
}

QWEN3_8B = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "rope_scaling": None,
    "attention_bias": False,
    "use_sliding_window": False,
    "sliding_window": None,
    "max_window_layers": 36,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 151643,
    "eos_token_id": 151645,
}


@pytest.fixture
def cpu():
    return PlatformInfo(
        device_type="cpu",
        device_name="a CPU",
        total_memory=32 * GIB,
        free_memory=24 * GIB,
        num_cpus=2,
        cpu_flags=("avx2",),
    )


@pytest.fixture
def h200():
    return PlatformInfo(
        device_type="cuda",
        device_name="NVIDIA H200",
        total_memory=140 * GIB,
        free_memory=139 * GIB,
        capability=(9, 0),
        num_cpus=16,
    )


@pytest.fixture
def t4():
    return PlatformInfo(
        device_type="cuda",
        device_name="Tesla T4",
        total_memory=15 * GIB,
        free_memory=14 * GIB,
        capability=(7, 5),
    )


@pytest.fixture
def a100():
    return PlatformInfo(
        device_type="cuda",
        device_name="NVIDIA A100-SXM4-80GB",
        total_memory=80 * GIB,
        free_memory=79 * GIB,
        capability=(8, 0),
    )


@pytest.fixture
def qwen3_8b():
    return dict(QWEN3_8B)


@pytest.fixture
def llama_8b():
    return dict(LLAMA_8B)
