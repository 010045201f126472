"""Configurations made from GGUF metadata."""

import math

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from octavo.checkpoints.locate import find_model
from octavo.config.architectures import model_arch
from octavo.types.errors import CheckpointError
from support.tiny_gguf import HEAD_DIM, VOCAB, hf_weights, write_gguf


def config_of(tmp_path, arch="llama", **kwargs):
    return find_model(str(write_gguf(tmp_path / "m.gguf", arch, **kwargs))).config()


@pytest.mark.parametrize(
    ("arch", "name"),
    [("llama", "Llama"), ("qwen2", "Qwen2"), ("qwen3", "Qwen3")],
)
def test_architectures(tmp_path, arch, name):
    config = config_of(tmp_path, arch)
    assert config["architectures"] == [f"{name}ForCausalLM"]
    assert config["model_type"] == arch
    assert config["vocab_size"] == VOCAB
    assert config["rms_norm_eps"] == 1e-5
    assert config["rope_theta"] == 10000.0
    assert config["rope_scaling"] is None
    assert config["tie_word_embeddings"] is False
    assert config["attention_bias"] == (arch == "qwen2")
    assert config["dtype"] == "float32"
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, 2)
    assert "sliding_window" not in config
    assert "partial_rotary_factor" not in config


def test_tied_embeddings_and_absent_head_size(tmp_path):
    metadata = {"llama.attention.key_length": None, "llama.rope.freq_base": None}
    config = config_of(tmp_path, weights=hf_weights("llama", tied=True), metadata=metadata)
    assert config["tie_word_embeddings"] is True
    assert config["head_dim"] == 16
    assert config["rope_theta"] == 10000.0


def test_sliding_window(tmp_path):
    metadata = {"llama.attention.sliding_window": 128}
    config = config_of(tmp_path, metadata=metadata)
    assert config["architectures"] == ["MistralForCausalLM"]
    assert config["sliding_window"] == 128
    config = config_of(tmp_path, "qwen2", metadata={"qwen2.attention.sliding_window": 64})
    assert config["use_sliding_window"] is True
    assert (config["sliding_window"], config["max_window_layers"]) == (64, 0)


def test_partial_rotary(tmp_path):
    config = config_of(tmp_path, metadata={"llama.rope.dimension_count": HEAD_DIM // 2})
    assert config["partial_rotary_factor"] == 0.5


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"scaling.type": "none", "scaling.factor": 2.0}, None),
        ({"scaling.type": "linear", "scaling.factor": 2.0}, {"rope_type": "linear", "factor": 2.0}),
        ({"scale_linear": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        (
            {
                "scaling.type": "yarn",
                "scaling.factor": 4.0,
                "scaling.original_context_length": 256,
                "scaling.attn_factor": 1.25,
                "scaling.yarn_beta_fast": 16.0,
            },
            {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 256,
                "attention_factor": 1.25,
                "beta_fast": 16.0,
            },
        ),
    ],
)
def test_rope_scaling(tmp_path, values, expected):
    metadata = {f"qwen2.rope.{key}": value for key, value in values.items()}
    assert config_of(tmp_path, "qwen2", metadata=metadata)["rope_scaling"] == expected


def test_llama3_scaling_is_recovered_from_its_factors(tmp_path):
    """The stored factors are transformers' unscaled frequencies over its scaled ones."""
    scaling = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    shape = {"hidden_size": 4 * HEAD_DIM, "num_attention_heads": 4, "head_dim": HEAD_DIM}
    shape["max_position_embeddings"] = 131072
    rope = {"rope_theta": 500000.0} | scaling
    scaled = LlamaRotaryEmbedding(LlamaConfig(**shape, rope_parameters=rope)).inv_freq
    plain = 500000.0 ** -(torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    factors = (plain / scaled).numpy().astype(np.float32)
    metadata = {"llama.rope.freq_base": 500000.0}
    config = config_of(tmp_path, metadata=metadata, tensors={"rope_freqs.weight": factors})
    assert config["rope_scaling"] == scaling
    factors[-1] *= 2
    with pytest.raises(CheckpointError, match="rope_freqs"):
        config_of(tmp_path, metadata=metadata, tensors={"rope_freqs.weight": factors})


@pytest.mark.parametrize(
    ("arch", "metadata", "message"),
    [
        ("rwkv6", {}, "general.architecture='rwkv6'; octavo reads GGUF models of bert, llama"),
        ("llama", {"llama.expert_count": 8}, "mixture of experts"),
        ("llama", {"llama.block_count": None}, "lacks the metadata key llama.block_count"),
        ("llama", {"llama.attention.head_count_kv": [2, 1]}, "different head counts"),
        (
            "llama",
            {"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 2.0},
            "'longrope'; octavo reads linear and yarn",
        ),
    ],
)
def test_refusals(tmp_path, arch, metadata, message):
    with pytest.raises(CheckpointError, match=message):
        config_of(tmp_path, arch, metadata=metadata)


def test_file_without_weights(tmp_path):
    with pytest.raises(CheckpointError, match=r"lacks the tensor token_embd\.weight"):
        config_of(tmp_path, weights={})


def test_dtype_of_quantized_and_half_files(tmp_path):
    weights = {name: array.astype(np.float16) for name, array in hf_weights("llama").items()}
    assert config_of(tmp_path, weights=weights)["dtype"] == "float16"
    weights["lm_head.weight"] = weights["lm_head.weight"].astype(np.float32)
    assert config_of(tmp_path, weights=weights)["dtype"] == "bfloat16"


def test_generation_and_tokenizer_config(tmp_path):
    metadata = {
        "tokenizer.ggml.eot_token_id": 5,
        "tokenizer.ggml.eom_token_id": 2,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": "default text",
        "tokenizer.chat_template.tool_use": "tool text",
        "tokenizer.chat_templates": ["tool_use"],
    }
    files = find_model(str(write_gguf(tmp_path / "m.gguf", metadata=metadata)))
    assert files.generation_config() == {
        "bos_token_id": 1,
        "eos_token_id": [2, 5],
        "pad_token_id": 0,
    }
    assert files.tokenizer_config() == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<unk>",
        "add_bos_token": True,
        "add_eos_token": False,
    }
    assert files.chat_templates() == {"default": "default text", "tool_use": "tool text"}
    assert files.chat_template() == "default text"


def test_default_model_is_smollm2():
    config = find_model("smollm2-135m-instruct").config()
    expected = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "max_position_embeddings": 8192,
        "rope_theta": 100000.0,
        "rms_norm_eps": 1e-5,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
        "eos_token_id": 2,
    }
    assert {key: config[key] for key in expected} == expected
    assert math.isclose(config["rms_norm_eps"], 1e-5)


def gemma(tmp_path, arch, **values):
    metadata = {f"{arch}.{key.replace('__', '.')}": value for key, value in values.items()}
    return config_of(tmp_path, arch, weights=hf_weights(arch, tied=True), metadata=metadata)


def test_gemma_3(tmp_path):
    config = gemma(
        tmp_path,
        "gemma3",
        attention__sliding_window=64,
        rope__freq_base=1e6,
        rope__scaling__type="linear",
        rope__scaling__factor=8.0,
    )
    assert config["architectures"] == ["Gemma3ForCausalLM"]
    assert config["model_type"] == "gemma3_text"
    arch = model_arch(config)
    assert arch.sliding_window == 64
    assert (arch.rope.theta, arch.sliding_rope.theta) == (1e6, 1e4)
    assert (arch.rope.scaling["factor"], arch.sliding_rope.scaling) == (8.0, None)
    assert arch.attention_scale == HEAD_DIM**-0.5
    assert arch.tie_word_embeddings
    assert "use_sliding_window" not in config


def test_gemma_2(tmp_path):
    config = gemma(
        tmp_path,
        "gemma2",
        attention__sliding_window=64,
        attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
        block_count=46,
    )
    arch = model_arch(config)
    assert (arch.attention_soft_cap, arch.logits_soft_cap) == (50.0, 30.0)
    assert config["query_pre_attn_scalar"] == 16  # 27B: hidden size / heads, not the head size
    assert arch.hidden_act == "gelu_pytorch_tanh"
