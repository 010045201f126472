"""Hugging Face configurations (config, generation_config, tokenizer_config) from GGUF metadata."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.checkpoints.gguf_families import GGUF_FAMILIES, GGUFFamily
from octavo.checkpoints.gguf_file import GGUFFile
from octavo.checkpoints.gguf_rope import rope_scaling, short_float
from octavo.checkpoints.gguf_special import special_entries
from octavo.checkpoints.tensors import TensorHeader
from octavo.types.errors import CheckpointError

# Architectures whose texts end in tokens of their own.
TEXT_ENCODERS = ("bert",)

_NAMED_TOKENS = (
    ("bos", "bos"),
    ("eos", "eos"),
    ("unk", "unknown"),
    ("pad", "padding"),
    ("cls", "cls"),
    ("sep", "seperator"),
    ("mask", "mask"),
)
# Values of {arch}.pooling_type that are one vector of a text; 4 is a classifier's.
_POOLING = {1: "mean", 2: "cls", 3: "lasttoken"}


def hf_config(
    file: GGUFFile, headers: Mapping[str, TensorHeader], tables: Mapping[str, NDArray[np.float32]]
) -> dict[str, Any]:
    """config.json of a GGUF model.

    `headers` are those of the whole model under GGUF names; `tables` are the tensors that are
    configuration (factors of rotary frequencies). Raises CheckpointError for an architecture that
    is not in GGUF_FAMILIES, or a model that its class can't express.
    """
    arch, kind = architecture(file), family(file)
    value = functools.partial(_value, file, arch)
    if file.get(f"{arch}.expert_count", 0):
        raise CheckpointError(
            f"{file.path} is a mixture of experts ({arch}.expert_count); "
            f"GGUF models that octavo reads are dense: {', '.join(GGUF_FAMILIES)}"
        )
    embedding = headers.get("token_embd.weight")
    if embedding is None:
        raise CheckpointError(f"{file.path} lacks the tensor token_embd.weight")
    hidden_size = value("embedding_length")
    num_heads, num_kv_heads = head_counts(file)
    head_dim = value("attention.key_length", hidden_size // num_heads)
    theta = value("rope.freq_base", 10000.0)
    rotary_dim = value("rope.dimension_count", head_dim)
    config: dict[str, Any] = {
        "hidden_size": hidden_size,
        # A file may say what the model's code assumed; the matrix can't be wrong.
        "intermediate_size": _inner_size(headers) or value("feed_forward_length"),
        "num_hidden_layers": value("block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": value("context_length"),
        "rms_norm_eps": short_float(value(kind.eps)),
        "rope_theta": short_float(theta),
        "rope_scaling": rope_scaling(file, arch, theta, tables),
        "vocab_size": embedding.shape[0],
        "tie_word_embeddings": "output.weight" not in headers,
        "attention_bias": any(f"blk.0.{name}.bias" in headers for name in ("attn_q", "attn_qkv")),
        "mlp_bias": "blk.0.ffn_up.bias" in headers,
        "dtype": _dtype(headers),
        **kind.fixed,
    }
    if rotary_dim != head_dim:
        config["partial_rotary_factor"] = rotary_dim / head_dim
    config = {kind.names.get(key, key): entry for key, entry in config.items()}
    for key, entry in kind.copied.items():
        found = file.get(f"{arch}.{key}")
        if found is not None:
            config[entry] = short_float(found) if isinstance(found, float) else found
    config |= {"architectures": [kind.architecture], "model_type": kind.model_type}
    config |= _token_ids(file) | _windows(file, arch, value("block_count"))
    return config | special_entries(file, arch, config, headers)


def _value(file: GGUFFile, arch: str, key: str, default: Any = None) -> Any:
    found = file.get(f"{arch}.{key}", default)
    if found is None:
        raise CheckpointError(f"{file.path} lacks the metadata key {arch}.{key}")
    return found


def head_counts(file: GGUFFile) -> tuple[int, int]:
    """(query heads, KV heads) of every layer. Raises CheckpointError where layers differ."""
    arch = architecture(file)
    num_heads = _value(file, arch, "attention.head_count")
    num_kv_heads = file.get(f"{arch}.attention.head_count_kv", num_heads)
    if not isinstance(num_heads, int) or not isinstance(num_kv_heads, int) or num_heads < 1:
        raise CheckpointError(
            f"{file.path} has layers of different head counts; {arch} models have one count"
        )
    return num_heads, num_kv_heads


def _inner_size(headers: Mapping[str, TensorHeader]) -> int | None:
    down = headers.get("blk.0.ffn_down.weight")
    return down.shape[-1] if down is not None and len(down.shape) == 2 else None


def _windows(file: GGUFFile, arch: str, num_layers: int) -> dict[str, Any]:
    """Entries about sliding layers, none where no layer slides."""
    window = file.get(f"{arch}.attention.sliding_window")
    if not window:
        return {}
    entries: dict[str, Any] = {"sliding_window": window}
    pattern = file.get(f"{arch}.attention.sliding_window_pattern")
    if isinstance(pattern, list) and len(pattern) == num_layers:
        kinds = ("full_attention", "sliding_attention")
        entries["layer_types"] = [kinds[bool(slides)] for slides in pattern]
    elif isinstance(pattern, int):
        entries["sliding_window_pattern"] = pattern
    return entries


def family(file: GGUFFile) -> GGUFFamily:
    """The family of a file's general.architecture."""
    return GGUF_FAMILIES[architecture(file)]


def architecture(file: GGUFFile) -> str:
    """general.architecture, checked against GGUF_FAMILIES."""
    arch = file.get("general.architecture")
    if arch not in GGUF_FAMILIES:
        raise CheckpointError(
            f"{file.path} has general.architecture={arch!r}; octavo reads GGUF models of "
            f"{', '.join(GGUF_FAMILIES)}"
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
    for ours, theirs in _NAMED_TOKENS:
        token_id = file.get(f"tokenizer.ggml.{theirs}_token_id")
        if token_id is not None:
            config[f"{ours}_token"] = file.item("tokenizer.ggml.tokens", token_id)
    spm = file.get("tokenizer.ggml.model") == "llama"
    llama3 = file.get("tokenizer.ggml.pre") in ("llama-bpe", "llama3", "llama-v3")
    if file.get("general.architecture") in TEXT_ENCODERS:
        return config  # what is around texts is in tokenizer.json
    config["add_bos_token"] = bool(file.get("tokenizer.ggml.add_bos_token", spm or llama3))
    config["add_eos_token"] = bool(file.get("tokenizer.ggml.add_eos_token", False))
    return config


def pooling_mode(file: GGUFFile) -> str | None:
    """How a text's states become one vector, in the words of Sentence Transformers; None: not."""
    return _POOLING.get(file.get(f"{architecture(file)}.pooling_type"))


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


def _dtype(headers: Mapping[str, TensorHeader]) -> str:
    """The type weights are meant to be computed in; quantized files come from bfloat16 models."""
    matrices = {header.dtype for header in headers.values() if len(header.shape) > 1}
    names = {"F32": "float32", "F16": "float16"}
    return names.get(matrices.pop(), "bfloat16") if len(matrices) == 1 else "bfloat16"
