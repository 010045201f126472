"""GGUF tensor names and row orders, translated to the Hugging Face layout."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Where architectures mean another norm by a name, or have more.
_LAYER_OF = {
    "gemma2": {
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    }
}
_LAYER_OF["gemma3"] = _LAYER_OF["gemma2"]
ROPE_FREQS = "rope_freqs.weight"


def hf_tensor_name(gguf_name: str, arch: str = "llama") -> str | None:
    """The Hugging Face name; None for a table that is configuration; else the name unchanged.

    A name this layout does not know is kept, so that the loader reports it as unexpected.
    """
    if gguf_name == ROPE_FREQS:
        return None
    stem, _, suffix = gguf_name.rpartition(".")
    if stem in _OUTER:
        return f"{_OUTER[stem]}.{suffix}"
    prefix, _, rest = stem.partition(".")
    index, _, part = rest.partition(".")
    module = _LAYER_OF.get(arch, {}).get(part) or _LAYER.get(part)
    if prefix == "blk" and module is not None:
        return f"model.layers.{index}.{module}.{suffix}"
    return gguf_name


def holds_one_more(hf_name: str, arch: str) -> bool:
    """Whether a file has 1 + weight where Hugging Face has the weight: norms of Gemma."""
    return arch.startswith("gemma") and hf_name.endswith("norm.weight")


def interleaved_heads(hf_name: str, num_heads: int, num_kv_heads: int) -> int | None:
    """How many heads a rotary projection of a "llama" GGUF interleaves; None for other tensors."""
    if ".self_attn.q_proj." in hf_name:
        return num_heads
    if ".self_attn.k_proj." in hf_name:
        return num_kv_heads
    return None


def restore_rows(array: NDArray[Any], num_heads: int) -> NDArray[Any]:
    """Undo the row order of "llama" GGUF files, where rotary pairs are neighbours.

    Converters turn each head's rows [first half, second half] (the Hugging Face order, pairs half
    a head apart) into [pair 0, pair 1, ...]. Rows are whole in every block type, so packed rows
    move the same way. array: [rows, ...].
    """
    rows, rest = array.shape[0], array.shape[1:]
    pairs = array.reshape(num_heads, rows // num_heads // 2, 2, *rest)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, *rest)
