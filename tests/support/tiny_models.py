"""Tiny random models of every family, saved by transformers, and octavo models loaded from them."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers

from octavo.checkpoints.locate import find_model
from octavo.checkpoints.model_files import ModelFiles
from octavo.config.architectures import model_arch
from octavo.distributed.group import SingleRank
from octavo.kernels.op import reference_kernels
from octavo.layers.quantization.methods.unquantized import Unquantized
from octavo.model_loader.loader import load_model
from octavo.models.context import ModelContext
from support.converted_models import CONVERSIONS, convert

VOCAB = 203  # odd: the output projection is padded
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 72,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "initializer_range": 0.3,  # logits far enough apart for greedy tokens to be unambiguous
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}

LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    # transformers chooses by the current length, octavo by the longest: here both are the same.
    "short_factor": [1.0 + 0.7 * i for i in range(8)],
    "long_factor": [1.0 + 0.7 * i for i in range(8)],
}
LEFT_OUT = object()
# Where sums in another order would move logits by more than the tolerance.
SMALLER = {"initializer_range": 0.2}
WITHOUT_HEAD_DIM = {"hidden_size": 96, "head_dim": LEFT_OUT, "pad_token_id": 0}
WITHOUT_GROUPS = WITHOUT_HEAD_DIM | {"num_key_value_heads": LEFT_OUT}
GPT2_SHAPE = WITHOUT_GROUPS | {
    "n_embd": 96,
    "n_inner": 112,
    "n_layer": 3,
    "n_head": 6,
    "n_positions": 512,
    "initializer_range": 0.2,
}
GEMMA_SHAPE = {"query_pre_attn_scalar": 24, "sliding_window": 24, "num_hidden_layers": 4}

FAMILIES = {
    "llama": (transformers.LlamaConfig, {"tie_word_embeddings": False}),
    "llama-tied": (transformers.LlamaConfig, SMALLER | {"tie_word_embeddings": True}),
    "llama-biases": (
        transformers.LlamaConfig,
        SMALLER | {"attention_bias": True, "mlp_bias": True},
    ),
    "llama3-rope": (transformers.LlamaConfig, SMALLER | {"rope_parameters": LLAMA3_ROPE}),
    "llama-yarn": (transformers.LlamaConfig, SMALLER | {"rope_parameters": YARN_ROPE}),
    "llama-linear": (
        transformers.LlamaConfig,
        SMALLER
        | {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    ),
    "llama-dynamic": (
        transformers.LlamaConfig,
        SMALLER
        | {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}},
    ),
    "mistral": (transformers.MistralConfig, {"sliding_window": None}),
    "mistral-window": (transformers.MistralConfig, {"sliding_window": 24}),
    "qwen2": (transformers.Qwen2Config, {"tie_word_embeddings": True}),
    "qwen2-window": (
        transformers.Qwen2Config,
        {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1},
    ),
    "qwen3": (transformers.Qwen3Config, {"tie_word_embeddings": False}),
    "gemma": (transformers.GemmaConfig, {"initializer_range": 0.1}),
    "gemma2": (transformers.Gemma2Config, GEMMA_SHAPE | {"attn_logit_softcapping": 5.0}),
    "gemma3": (
        transformers.Gemma3TextConfig,
        GEMMA_SHAPE | {"num_hidden_layers": 7, "sliding_window_pattern": 3},
    ),
    "phi3": (transformers.Phi3Config, WITHOUT_HEAD_DIM | {"sliding_window": 24}),
    "phi3-longrope": (
        transformers.Phi3Config,
        WITHOUT_HEAD_DIM
        | {
            "rope_parameters": LONG_ROPE,
            "original_max_position_embeddings": 64,
            "initializer_range": 0.15,
        },
    ),
    "phi4-mini": (
        transformers.Phi3Config,
        WITHOUT_HEAD_DIM
        | {
            "rope_parameters": LONG_ROPE
            | {
                "partial_rotary_factor": 0.75,
                "short_factor": [1.0] * 6,
                "long_factor": [1.0, 1.1, 1.5, 2.0, 3.0, 4.0],
            },
            "original_max_position_embeddings": 512,
            "tie_word_embeddings": True,
        },
    ),
    "olmo2": (transformers.Olmo2Config, WITHOUT_HEAD_DIM),
    "olmo3": (
        transformers.Olmo3Config,
        WITHOUT_HEAD_DIM
        | {
            "num_hidden_layers": 5,
            "sliding_window": 24,
            "rope_scaling": YARN_ROPE | {"rope_theta": 5000.0},
        },
    ),
    "granite": (
        transformers.GraniteConfig,
        WITHOUT_HEAD_DIM
        | {
            "embedding_multiplier": 6.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.1,
            "logits_scaling": 2.0,
        },
    ),
    "stablelm": (
        transformers.StableLmConfig,
        WITHOUT_HEAD_DIM | SMALLER | {"use_qkv_bias": True, "partial_rotary_factor": 0.5},
    ),
    "stablelm-parallel": (
        transformers.StableLmConfig,
        WITHOUT_HEAD_DIM | {"use_parallel_residual": True, "qk_layernorm": True},
    ),
    "gpt2": (transformers.GPT2Config, GPT2_SHAPE),
    "gpt2-by-layer": (
        transformers.GPT2Config,
        GPT2_SHAPE | {"scale_attn_by_inverse_layer_idx": True, "tie_word_embeddings": False},
    ),
    "gpt-neox": (transformers.GPTNeoXConfig, WITHOUT_GROUPS | {"rotary_pct": 0.5}),
    "gpt-neox-sequential": (
        transformers.GPTNeoXConfig,
        WITHOUT_GROUPS | SMALLER | {"use_parallel_residual": False, "attention_bias": False},
    ),
    "opt": (transformers.OPTConfig, WITHOUT_GROUPS | {"ffn_dim": 112, "init_std": 0.2}),
    "cohere": (transformers.CohereConfig, WITHOUT_HEAD_DIM | {"logit_scale": 0.25}),
    "cohere-norms": (
        transformers.CohereConfig,
        WITHOUT_HEAD_DIM | {"use_qk_norm": True, "attention_bias": True, "logit_scale": 0.25},
    ),
    "cohere2": (
        transformers.Cohere2Config,
        WITHOUT_HEAD_DIM | {"num_hidden_layers": 5, "sliding_window": 24, "logit_scale": 0.25},
    ),
    "smollm3": (
        transformers.SmolLM3Config,
        WITHOUT_HEAD_DIM | {"num_hidden_layers": 5, "initializer_range": 0.15},
    ),
    "exaone4": (
        transformers.Exaone4Config,
        WITHOUT_HEAD_DIM | {"num_hidden_layers": 5, "sliding_window": 24},
    ),
    "exaone4-full": (
        transformers.Exaone4Config,
        WITHOUT_HEAD_DIM | {"sliding_window": None, "layer_types": ["full_attention"] * 3},
    ),
    "mpt": (
        transformers.MptConfig,
        WITHOUT_GROUPS
        | {
            "intermediate_size": LEFT_OUT,
            "d_model": 96,
            "n_heads": 6,
            "n_layers": 3,
            "max_seq_len": 512,
            "initializer_range": 0.2,
        },
    ),
    "bloom": (
        transformers.BloomConfig,
        WITHOUT_GROUPS
        | {"intermediate_size": LEFT_OUT, "n_layer": 3, "n_head": 6, "initializer_range": 0.1},
    ),
    "internlm": (
        transformers.LlamaConfig,
        WITHOUT_GROUPS | SMALLER | {"attention_bias": True},
    ),
    "internlm2": (transformers.LlamaConfig, WITHOUT_HEAD_DIM | SMALLER),
    "internlm3": (transformers.LlamaConfig, SMALLER | {"attention_bias": True, "mlp_bias": True}),
    "exaone": (transformers.LlamaConfig, WITHOUT_HEAD_DIM | SMALLER),
}


def save_tiny(family: str, folder: Path, **changes) -> transformers.PreTrainedModel:
    """Make a model of the family with random weights and save it; returns transformers' model."""
    config_class, special = FAMILIES[family]
    torch.manual_seed(len(family))
    values = {**SHAPE, **special, **changes}
    config = config_class(**{key: v for key, v in values.items() if v is not LEFT_OUT})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0.0, 0.3)
            elif "norm" in name or ".ln_" in name:
                parameter.uniform_(0.5, 1.5)
    model.save_pretrained(folder)
    if family in CONVERSIONS:
        convert(folder, CONVERSIONS[family])
    return model


def save_wide_qwen3(
    folder: Path, *, vocab_size: int, intermediate_size: int, num_hidden_layers: int
) -> None:
    """A Qwen3 of heads a GPU's kernels are made for, in float32; always the same weights."""
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=256,
        intermediate_size=intermediate_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=2048,
        eos_token_id=0,
    )
    model = transformers.Qwen3ForCausalLM(config).float()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.1)
    model.save_pretrained(folder)


def model_context(files: ModelFiles, *, max_model_len: int = 512, dtype=torch.float32):
    """A context for one CPU rank, as the worker makes it."""
    config = files.config()
    return ModelContext(
        dtype=dtype,
        device=torch.device("cpu"),
        kernels=reference_kernels(),
        group=SingleRank(),
        quantization=Unquantized(),
        arch=model_arch(config),
        max_model_len=max_model_len,
        hf_config=config,
    )


def load_tiny(folder: Path, *, load_format: str = "auto", max_model_len: int = 512):
    files = find_model(str(folder))
    return load_model(model_context(files, max_model_len=max_model_len), files, load_format)
