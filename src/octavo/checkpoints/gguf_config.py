"""Hugging Face configurations (config, generation_config, tokenizer_config) from GGUF metadata."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.checkpoints.gguf_file import GGUFFile
from octavo.checkpoints.tensors import TensorHeader
from octavo.types.errors import CheckpointError

# general.architecture -> (architectures[0], model_type)
ARCHITECTURES = {
    "llama": ("LlamaForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "gemma": ("GemmaForCausalLM", "gemma"),
    "gemma2": ("Gemma2ForCausalLM", "gemma2"),
    "gemma3": ("Gemma3ForCausalLM", "gemma3_text"),
}
# Layers of the Gemma models whose scores are scaled by hidden_size / heads, not by the head size;
# GGUF does not say so.
_GEMMA_27B_LAYERS = {"gemma2": 46, "gemma3": 62}
# The constants of every Llama 3.x checkpoint; GGUF stores only the factors made from them.
_LLAMA3_LOW, _LLAMA3_HIGH, _LLAMA3_ORIGINAL = 1.0, 4.0, 8192
_YARN_KEYS = {
    "attn_factor": "attention_factor",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}


def hf_config(
    file: GGUFFile, headers: dict[str, TensorHeader], rope_freqs: NDArray[np.float32] | None
) -> dict[str, Any]:
    """config.json of a GGUF model.

    `headers` are those of the whole model under GGUF names; `rope_freqs` is the tensor
    rope_freqs.weight where the file has one (Llama 3's scaled frequencies). Raises
    CheckpointError for an architecture that is not in ARCHITECTURES.
    """
    arch = architecture(file)
    architecture_name, model_type = ARCHITECTURES[arch]

    def value(key: str, default: Any = None) -> Any:
        found = file.get(f"{arch}.{key}", default)
        if found is None:
            raise CheckpointError(f"{file.path} lacks the metadata key {arch}.{key}")
        return found

    if file.get(f"{arch}.expert_count", 0):
        raise CheckpointError(
            f"{file.path} is a mixture of experts ({arch}.expert_count); "
            f"GGUF models that octavo reads are dense: {', '.join(ARCHITECTURES)}"
        )
    embedding = headers.get("token_embd.weight")
    if embedding is None:
        raise CheckpointError(f"{file.path} lacks the tensor token_embd.weight")
    hidden_size, num_heads = value("embedding_length"), value("attention.head_count")
    num_kv_heads = value("attention.head_count_kv", num_heads)
    if not isinstance(num_heads, int) or not isinstance(num_kv_heads, int):
        raise CheckpointError(
            f"{file.path} has layers of different head counts; {arch} models have one count"
        )
    head_dim = value("attention.key_length", hidden_size // num_heads)
    theta = value("rope.freq_base", 10000.0)
    rotary_dim = value("rope.dimension_count", head_dim)
    window = file.get(f"{arch}.attention.sliding_window")
    config: dict[str, Any] = {
        "architectures": [architecture_name],
        "model_type": model_type,
        "hidden_size": hidden_size,
        "intermediate_size": value("feed_forward_length"),
        "num_hidden_layers": value("block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": value("context_length"),
        "rms_norm_eps": _short_float(value("attention.layer_norm_rms_epsilon")),
        "rope_theta": _short_float(theta),
        "rope_scaling": _rope_scaling(file, arch, theta, rope_freqs),
        "vocab_size": embedding.shape[0],
        "tie_word_embeddings": "output.weight" not in headers,
        "attention_bias": "blk.0.attn_q.bias" in headers,
        "mlp_bias": "blk.0.ffn_up.bias" in headers,
        "dtype": _dtype(headers),
        **_token_ids(file),
    }
    if rotary_dim != head_dim:
        config["partial_rotary_factor"] = rotary_dim / head_dim
    if arch.startswith("gemma"):
        config |= _gemma(file, arch, head_dim, hidden_size // num_heads)
    elif window:
        # Only Mistral's variant of the Llama layout has a window.
        mistral = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
        own = {"use_sliding_window": True, "max_window_layers": 0}
        config |= mistral if arch == "llama" else own
        config["sliding_window"] = window
    return config


def _gemma(file: GGUFFile, arch: str, head_dim: int, even_head_dim: int) -> dict[str, Any]:
    """The entries that Gemma's configs have besides."""
    last = file.get(f"{arch}.block_count") == _GEMMA_27B_LAYERS.get(arch)
    entries: dict[str, Any] = {
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": even_head_dim if last else head_dim,
    }
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        cap = file.get(f"{arch}.{key}")
        if cap is not None:
            entries[key] = _short_float(cap)
    window = file.get(f"{arch}.attention.sliding_window")
    if window:
        entries["sliding_window"] = window
    if arch == "gemma3":
        local = file.get(f"{arch}.rope.freq_base_swa", 10000.0)
        entries["rope_local_base_freq"] = _short_float(local)
    return entries


def architecture(file: GGUFFile) -> str:
    """general.architecture, checked against ARCHITECTURES."""
    arch = file.get("general.architecture")
    if arch not in ARCHITECTURES:
        raise CheckpointError(
            f"{file.path} has general.architecture={arch!r}; octavo reads GGUF models of "
            f"{', '.join(ARCHITECTURES)}"
        )
    return str(arch)


def generation_config(file: GGUFFile) -> dict[str, Any]:
    """End, begin and padding tokens; every end-of-turn token the file declares ends a text."""
    config = _token_ids(file)
    ends = [
        file.get(f"tokenizer.ggml.{name}_token_id")
        for name in ("eos", "eot", "eom")
        if file.get(f"tokenizer.ggml.{name}_token_id") is not None
    ]
    ends = list(dict.fromkeys(ends))
    if len(ends) > 1:
        config["eos_token_id"] = ends
    return config


def tokenizer_config(file: GGUFFile) -> dict[str, Any]:
    """Special tokens by text, and whether encoding adds the begin and end tokens."""
    config: dict[str, Any] = {}
    for ours, theirs in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token_id = file.get(f"tokenizer.ggml.{theirs}_token_id")
        if token_id is not None:
            config[f"{ours}_token"] = file.item("tokenizer.ggml.tokens", token_id)
    spm = file.get("tokenizer.ggml.model") == "llama"
    llama3 = file.get("tokenizer.ggml.pre") in ("llama-bpe", "llama3", "llama-v3")
    config["add_bos_token"] = bool(file.get("tokenizer.ggml.add_bos_token", spm or llama3))
    config["add_eos_token"] = bool(file.get("tokenizer.ggml.add_eos_token", False))
    return config


def chat_templates(file: GGUFFile) -> dict[str, str]:
    """tokenizer.chat_template as "default", and tokenizer.chat_template.NAME as NAME."""
    prefix = "tokenizer.chat_template"
    templates = {
        key[len(prefix) + 1 :] or "default": file.get(key)
        for key in file.keys()  # noqa: SIM118 - GGUFFile is no mapping
        if key == prefix or key.startswith(prefix + ".")
    }
    return {name: text for name, text in templates.items() if isinstance(text, str)}


def _token_ids(file: GGUFFile) -> dict[str, Any]:
    names = {"bos": "bos_token_id", "eos": "eos_token_id", "padding": "pad_token_id"}
    found = {ours: file.get(f"tokenizer.ggml.{name}_token_id") for name, ours in names.items()}
    return {name: token_id for name, token_id in found.items() if token_id is not None}


def _rope_scaling(
    file: GGUFFile, arch: str, theta: float, rope_freqs: NDArray[np.float32] | None
) -> dict[str, Any] | None:
    if rope_freqs is not None:
        return _llama3_scaling(file, theta, rope_freqs)
    kind = file.get(f"{arch}.rope.scaling.type", "none")
    factor = file.get(f"{arch}.rope.scaling.factor", file.get(f"{arch}.rope.scale_linear"))
    if kind == "none" and f"{arch}.rope.scale_linear" in file:
        kind = "linear"
    if kind == "none" or factor is None:
        return None
    if kind not in ("linear", "yarn"):
        raise CheckpointError(
            f"{file.path} has {arch}.rope.scaling.type={kind!r}; octavo reads linear and yarn"
        )
    scaling: dict[str, Any] = {"rope_type": kind, "factor": _short_float(factor)}
    if kind == "yarn":
        original = file.get(f"{arch}.rope.scaling.original_context_length")
        if original is not None:
            scaling["original_max_position_embeddings"] = original
        for theirs, ours in _YARN_KEYS.items():
            if f"{arch}.rope.scaling.{theirs}" in file:
                scaling[ours] = _short_float(file.get(f"{arch}.rope.scaling.{theirs}"))
    return scaling


def _llama3_scaling(
    file: GGUFFile, theta: float, rope_freqs: NDArray[np.float32]
) -> dict[str, Any]:
    """The parameters whose frequency factors (Llama 3.1, section 3.4 of its report) are stored."""
    factor = round(float(rope_freqs.max()), 3)
    exponents = np.arange(rope_freqs.size, dtype=np.float64) / rope_freqs.size
    wavelengths = 2 * math.pi * theta**exponents
    smooth = (_LLAMA3_ORIGINAL / wavelengths - _LLAMA3_LOW) / (_LLAMA3_HIGH - _LLAMA3_LOW)
    smooth = smooth.clip(0.0, 1.0)
    expected = 1.0 / ((1.0 - smooth) / factor + smooth)
    if not np.allclose(rope_freqs, expected, rtol=1e-3):
        raise CheckpointError(
            f"{file.path}: rope_freqs.weight does not hold the factors of a Llama 3 scaling; "
            "use the model's safetensors files"
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": _LLAMA3_LOW,
        "high_freq_factor": _LLAMA3_HIGH,
        "original_max_position_embeddings": _LLAMA3_ORIGINAL,
    }


def _dtype(headers: dict[str, TensorHeader]) -> str:
    """The type weights are meant to be computed in; quantized files come from bfloat16 models."""
    matrices = {header.dtype for header in headers.values() if len(header.shape) > 1}
    names = {"F32": "float32", "F16": "float16"}
    return names.get(matrices.pop(), "bfloat16") if len(matrices) == 1 else "bfloat16"


def _short_float(value: float) -> float:
    """The shortest decimal that is the same float32: 1e-05 where the file has 9.9999997e-06."""
    return float(np.format_float_scientific(np.float32(value)))
