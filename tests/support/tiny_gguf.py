"""Small GGUF files, written with the gguf package as model converters write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

HIDDEN, INTER, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 64, 96, 2, 4, 2, 32, 40
TOKENS = ["<unk>", "<s>", "</s>", *map(chr, range(0x41, 0x41 + VOCAB - 5)), "AB", "ABC"]
_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


# Gemma 2 and 3 mean another norm by "ffn_norm", and have more.
_SANDWICH = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def hf_weights(arch: str, tied: bool = False) -> dict[str, np.ndarray]:
    """Random weights in the Hugging Face layout, multiples of 1/64 so that Q8_0 is near."""
    rng = np.random.default_rng(7)

    def make(*shape: int) -> np.ndarray:
        return (rng.integers(-64, 64, shape) / 64).astype(np.float32)

    weights = {"model.embed_tokens.weight": make(VOCAB, HIDDEN), "model.norm.weight": make(HIDDEN)}
    if not tied:
        weights["lm_head.weight"] = make(VOCAB, HIDDEN)
    for layer in range(LAYERS):
        shapes: dict[str, tuple[int, ...]] = {
            "self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            "mlp.gate_proj.weight": (INTER, HIDDEN),
            "mlp.up_proj.weight": (INTER, HIDDEN),
            "mlp.down_proj.weight": (HIDDEN, INTER),
            "input_layernorm.weight": (HIDDEN,),
            "post_attention_layernorm.weight": (HIDDEN,),
        }
        if arch in ("gemma2", "gemma3"):
            shapes |= {f"{norm}.weight": (HIDDEN,) for norm in _SANDWICH}
        if arch in ("qwen3", "gemma3"):
            shapes |= {f"self_attn.{part}_norm.weight": (HEAD_DIM,) for part in "qk"}
        if arch == "qwen2":
            shapes |= {
                f"self_attn.{part}_proj.bias": (heads * HEAD_DIM,)
                for part, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))
            }
        for name, shape in shapes.items():
            weights[f"model.layers.{layer}.{name}"] = make(*shape)
    return weights


def write_gguf(
    path: Path,
    arch: str = "llama",
    *,
    weights: dict[str, np.ndarray] | None = None,
    quantize: Kind | None = None,
    metadata: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
) -> Path:
    """A model of `weights` (default hf_weights(arch)); "llama" interleaves rotary rows.

    `quantize` is the type of the matrices; `metadata` are more values, None leaves one out;
    `tensors` are more tensors under GGUF names.
    """
    writer = gguf.GGUFWriter(path, arch)
    values: dict[str, Any] = {
        f"{arch}.block_count": LAYERS,
        f"{arch}.context_length": 512,
        f"{arch}.embedding_length": HIDDEN,
        f"{arch}.feed_forward_length": INTER,
        f"{arch}.attention.head_count": HEADS,
        f"{arch}.attention.head_count_kv": KV_HEADS,
        f"{arch}.attention.key_length": HEAD_DIM,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{arch}.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [3, 3, 3] + [1] * (VOCAB - 3),
        "tokenizer.ggml.merges": ["A B", "AB C"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    for key, value in (values | (metadata or {})).items():
        if value is not None:
            _ADD[type(value)](writer, key, value)
    if weights is None:
        weights = hf_weights(arch)
    for name, array in weights.items():
        if arch == "llama":
            array = _interleave(name, array)
        if arch.startswith("gemma") and name.endswith("norm.weight"):
            array = array + 1
        if quantize is not None and array.ndim == 2:
            data = gguf.quants.quantize(array, quantize)
            writer.add_tensor(gguf_name(name, arch), data, raw_dtype=quantize)
        else:
            writer.add_tensor(gguf_name(name, arch), array)
    for name, array in (tensors or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_name(name: str, arch: str = "llama") -> str:
    """The GGUF name of a Hugging Face tensor."""
    outer = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    stem, _, suffix = name.rpartition(".")
    if stem in outer:
        return f"{outer[stem]}.{suffix}"
    _, _, layer, part = stem.split(".", 3)
    names = _NAMES | _SANDWICH if arch in ("gemma2", "gemma3") else _NAMES
    return f"blk.{layer}.{names[part]}.{suffix}"


def _interleave(name: str, array: np.ndarray) -> np.ndarray:
    heads = HEADS if ".q_proj." in name else KV_HEADS if ".k_proj." in name else 0
    if not heads:
        return array
    rows = array.shape[0]
    halves = array.reshape(heads, 2, rows // heads // 2, *array.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)


_ADD: dict[type, Any] = {
    int: gguf.GGUFWriter.add_uint32,
    float: gguf.GGUFWriter.add_float32,
    bool: gguf.GGUFWriter.add_bool,
    str: gguf.GGUFWriter.add_string,
    list: gguf.GGUFWriter.add_array,
}
