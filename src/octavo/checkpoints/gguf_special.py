"""Entries of configurations that follow from more than one fact of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.checkpoints.gguf_file import GGUFFile
from octavo.checkpoints.gguf_rope import short_float
from octavo.checkpoints.tensors import TensorHeader
from octavo.types.errors import CheckpointError

# Layers of the Gemma models whose scores are scaled by hidden_size / heads, not by the head size;
# GGUF does not say so.
_GEMMA_27B_LAYERS = {"gemma2": 46, "gemma3": 62}


def special_entries(
    file: GGUFFile, arch: str, config: Mapping[str, Any], headers: Mapping[str, TensorHeader]
) -> dict[str, Any]:
    """What replaces or joins the entries of `config`, for the families that need it."""
    match arch:
        case "llama":
            return _llama(config, headers)
        case "qwen2" | "qwen3" if config.get("sliding_window"):
            return {"use_sliding_window": True, "max_window_layers": 0}
        case "gemma2" | "gemma3":
            return _gemma(file, arch, config)
        case "olmo2" if config.get("sliding_window"):
            return {"architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3"}
        case "command-r":
            return {"use_qk_norm": "blk.0.attn_q_norm.weight" in headers}
        case "stablelm" if "blk.0.attn_q_norm.weight" in headers:
            raise CheckpointError(
                f"{file.path} has norms of queries and keys, which octavo reads from StableLM's "
                "safetensors files only"
            )
        case "bert":
            return _bert(file, headers)
        case "bloom" | "gpt2" | "mpt":
            return _without_rope(file, arch, config)
        case _:
            return {}


def _bert(file: GGUFFile, headers: Mapping[str, TensorHeader]) -> dict[str, Any]:
    """What the tables of positions and of texts say, and what the model ends in."""
    positions, texts = headers.get("position_embd.weight"), headers.get("token_types.weight")
    if positions is None:
        raise CheckpointError(f"{file.path} lacks the tensor position_embd.weight")
    entries: dict[str, Any] = {
        "max_position_embeddings": positions.shape[0],
        "type_vocab_size": 0 if texts is None else texts.shape[0],
    }
    scores = headers.get("cls.output.weight")
    if scores is not None:
        labels = file.get("bert.classifier.output_labels") or []
        entries["architectures"] = ["BertForSequenceClassification"]
        entries["num_labels"] = scores.shape[0]
        if len(labels) == scores.shape[0]:
            entries["id2label"] = {str(index): label for index, label in enumerate(labels)}
    return entries


def _llama(config: Mapping[str, Any], headers: Mapping[str, TensorHeader]) -> dict[str, Any]:
    """Other families that converters write as Llama's."""
    if config.get("sliding_window"):
        # Only Mistral's variant of the Llama layout has a window.
        return {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    on_qkv, on_output = config["attention_bias"], "blk.0.attn_output.bias" in headers
    if on_qkv != on_output or (on_output and not config["mlp_bias"]):
        return {
            "architectures": ["InternLM3ForCausalLM"],
            "model_type": "internlm3",
            "qkv_bias": on_qkv,
            "bias": on_output,
        }
    return {}


def _gemma(file: GGUFFile, arch: str, config: Mapping[str, Any]) -> dict[str, Any]:
    even_head_dim = config["hidden_size"] // config["num_attention_heads"]
    last = config["num_hidden_layers"] == _GEMMA_27B_LAYERS[arch]
    entries: dict[str, Any] = {
        "query_pre_attn_scalar": even_head_dim if last else config["head_dim"]
    }
    if arch == "gemma3":
        local = file.get(f"{arch}.rope.freq_base_swa", 10000.0)
        entries["rope_local_base_freq"] = short_float(local)
    return entries


def _without_rope(file: GGUFFile, arch: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """MPT's options, which converters write as numbers."""
    if arch != "mpt":
        return {}
    if file.get("mpt.attention.clamp_kqv") or not file.get("mpt.attention.max_alibi_bias"):
        raise CheckpointError(
            f"{file.path} clamps queries, keys and values or has learned positions, which "
            "octavo's MPT class does not"
        )
    if config["num_key_value_heads"] != config["n_heads"]:
        raise CheckpointError(f"{file.path} shares KV heads, which octavo's MPT class does not")
    return {"attn_config": {"alibi": True, "alibi_bias_max": 8}}
