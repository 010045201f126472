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

FAMILIES = {
    "llama": (transformers.LlamaConfig, {"tie_word_embeddings": False}),
    "llama-tied": (transformers.LlamaConfig, {"tie_word_embeddings": True}),
    "llama-biases": (transformers.LlamaConfig, {"attention_bias": True, "mlp_bias": True}),
    "llama3-rope": (transformers.LlamaConfig, {"rope_parameters": LLAMA3_ROPE}),
    "llama-yarn": (transformers.LlamaConfig, {"rope_parameters": YARN_ROPE}),
    "mistral": (transformers.MistralConfig, {"sliding_window": None}),
    "mistral-window": (transformers.MistralConfig, {"sliding_window": 24}),
    "qwen2": (transformers.Qwen2Config, {"tie_word_embeddings": True}),
    "qwen2-window": (
        transformers.Qwen2Config,
        {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1},
    ),
    "qwen3": (transformers.Qwen3Config, {"tie_word_embeddings": False}),
}


def save_tiny(family: str, folder: Path, **changes) -> transformers.PreTrainedModel:
    """Make a model of the family with random weights and save it; returns transformers' model."""
    config_class, special = FAMILIES[family]
    torch.manual_seed(len(family))
    config = config_class(**{**SHAPE, **special, **changes})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0.0, 0.3)
            elif "norm" in name:
                parameter.uniform_(0.5, 1.5)
    model.save_pretrained(folder)
    return model


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
