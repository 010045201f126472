"""Llama checkpoints rewritten as those of families that transformers has no model of."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Conversion:
    """What becomes of a Llama config and its tensors."""

    config: dict  # more entries
    rename: dict[str, str]  # entries of the config with another name
    tensors: Callable[[Tensors, dict], Tensors]


def convert(folder: Path, conversion: Conversion) -> None:
    """Rewrite a folder that transformers saved."""
    config = json.loads((folder / "config.json").read_text())
    tensors = conversion.tensors(load_file(folder / "model.safetensors"), config)
    for old, new in conversion.rename.items():
        config[new] = config.pop(old)
    (folder / "config.json").write_text(json.dumps(config | conversion.config))
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "model.safetensors")


def _renamed(tensors: Tensors, names: dict[str, str]) -> Tensors:
    found = {}
    for name, tensor in tensors.items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        found[name] = tensor
    return found


def _internlm2(tensors: Tensors, config: dict) -> Tensors:
    """Queries, key and value of each KV head together in wqkv."""
    num_kv_heads = config["num_key_value_heads"]
    size = config["hidden_size"] // config["num_attention_heads"]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}.self_attn."
        parts = [tensors.pop(f"{prefix}{part}_proj.weight") for part in "qkv"]
        heads = [part.unflatten(0, (num_kv_heads, -1, size)) for part in parts]
        tensors[f"{prefix}wqkv.weight"] = torch.cat(heads, dim=1).flatten(0, 2)
    return _renamed(
        tensors,
        {
            "embed_tokens": "tok_embeddings",
            "lm_head": "output",
            "self_attn.o_proj": "self_attn.wo",
            "self_attn": "attention",
            "mlp.gate_proj": "feed_forward.w1",
            "mlp.up_proj": "feed_forward.w3",
            "mlp.down_proj": "feed_forward.w2",
            "input_layernorm": "attention_norm",
            "post_attention_layernorm": "ffn_norm",
        },
    )


def _exaone(tensors: Tensors, config: dict) -> Tensors:
    return _renamed(
        tensors,
        {
            "model.embed_tokens": "transformer.wte",
            "model.layers": "transformer.h",
            "model.norm": "transformer.ln_f",
            "self_attn.o_proj": "self_attn.out_proj",
            "self_attn": "attn.attention",
            "mlp.gate_proj": "mlp.c_fc_0",
            "mlp.up_proj": "mlp.c_fc_1",
            "mlp.down_proj": "mlp.c_proj",
            "input_layernorm": "ln_1",
            "post_attention_layernorm": "ln_2",
        },
    )


CONVERSIONS = {
    "internlm": Conversion(
        {"architectures": ["InternLMForCausalLM"], "model_type": "internlm", "bias": True},
        {"num_key_value_heads": "ignored", "attention_bias": "ignored", "head_dim": "ignored"},
        lambda tensors, config: tensors,
    ),
    "internlm2": Conversion(
        {"architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2", "bias": False},
        {},
        _internlm2,
    ),
    "internlm3": Conversion(
        {"architectures": ["InternLM3ForCausalLM"], "qkv_bias": True, "bias": True},
        {},
        lambda tensors, config: tensors,
    ),
    "exaone": Conversion(
        {"architectures": ["ExaoneForCausalLM"], "model_type": "exaone"},
        {
            "num_hidden_layers": "num_layers",
            "hidden_act": "activation_function",
            "rms_norm_eps": "layer_norm_epsilon",
        },
        _exaone,
    ),
}
