"""config.json from params.json, the configuration of Mistral's own code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from octavo.types.errors import CheckpointError

# What models have besides a plain decoder, and octavo's Mistral class has not.
_UNSUPPORTED = {
    "moe": "experts",
    "vision_encoder": "images",
    "multimodal": "images or audio",
    "audio": "audio",
    "llama_4_scaling": "scores scaled by position",
    "q_lora_rank": "latent attention",
    "quantization": "quantized weights",
}
_MAX_POSITIONS = 128_000  # where params.json does not say
_BOS, _EOS = 1, 2  # of every Mistral tokenizer


def hf_config(path: Path, params: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a MistralForCausalLM.

    `params` is the content of the params.json at `path`. Raises CheckpointError for an entry that
    is missing, or that names what octavo's class lacks.
    """
    for name, what in _UNSUPPORTED.items():
        if params.get(name):
            raise CheckpointError(
                f"{path} has {name!r} ({what}), which octavo does not read from this format; use "
                "the model's Hugging Face files: --config-format hf --load-format safetensors"
            )

    def size(name: str, default: int | None = None) -> int:
        value = params.get(name, default)
        if type(value) is not int or value < 1:
            raise CheckpointError(f"{path} has {name}={value!r}; expected a whole number > 0")
        return value

    hidden_size, num_heads, num_layers = size("dim"), size("n_heads"), size("n_layers")
    window, layer_types = _windows(path, params.get("sliding_window"), num_layers)
    positions = params.get("max_position_embeddings", params.get("max_seq_len", _MAX_POSITIONS))
    config: dict[str, Any] = {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "hidden_size": hidden_size,
        "intermediate_size": size("hidden_dim"),
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "num_key_value_heads": size("n_kv_heads", num_heads),
        "head_dim": size("head_dim", hidden_size // num_heads),
        "hidden_act": "silu",
        "max_position_embeddings": positions,
        "rms_norm_eps": params.get("norm_eps", 1e-5),
        "rope_theta": params.get("rope_theta", 10000.0),
        "rope_scaling": _yarn(path, params.get("yarn")),
        "vocab_size": size("vocab_size"),
        "tie_word_embeddings": bool(params.get("tied_embeddings", False)),
        "sliding_window": window,
        "dtype": "bfloat16",
        "bos_token_id": _BOS,
        "eos_token_id": _EOS,
    }
    if layer_types is not None:
        config["layer_types"] = layer_types
    return config


def _windows(path: Path, value: Any, num_layers: int) -> tuple[int | None, list[str] | None]:
    """(window, kind of each layer where they differ); a list of windows repeats over the layers."""
    if value is None or type(value) is int:
        return value or None, None
    sizes = {size for size in value if size} if isinstance(value, list) else set()
    if len(sizes) != 1:
        raise CheckpointError(f"{path} has sliding_window={value!r}; expected one size")
    kinds = ["sliding_attention" if size else "full_attention" for size in value]
    return sizes.pop(), [kinds[index % len(kinds)] for index in range(num_layers)]


def _yarn(path: Path, yarn: Any) -> dict[str, Any] | None:
    if not yarn:
        return None
    try:
        scaling = {
            "rope_type": "yarn",
            "factor": float(yarn["factor"]),
            "original_max_position_embeddings": yarn["original_max_position_embeddings"],
            "beta_fast": float(yarn["beta"]),
            "beta_slow": float(yarn["alpha"]),
        }
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{path} has yarn={yarn!r}, which lacks {error}") from error
    return scaling if yarn.get("apply_scale", True) else scaling | {"attention_factor": 1.0}
