"""MistralFiles: a folder whose weights have the names and row orders of Mistral's own code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from octavo.checkpoints.folder import FolderFiles
from octavo.checkpoints.gguf_layout import interleaved_heads, restore_rows
from octavo.checkpoints.tensors import RawTensor, TensorHeader
from octavo.checkpoints.weight_files import MISTRAL

_OUTER = {"tok_embeddings": "model.embed_tokens", "norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attention_norm": "input_layernorm",
    "attention.wq": "self_attn.q_proj",
    "attention.wk": "self_attn.k_proj",
    "attention.wv": "self_attn.v_proj",
    "attention.wo": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w2": "mlp.down_proj",
    "feed_forward.w3": "mlp.up_proj",
}
_IN_LAYER = re.compile(r"layers\.(\d+)\.(.+)")


class MistralFiles(FolderFiles):
    """consolidated*.safetensors, params.json or config.json, tekken.json or tokenizer.json."""

    def __init__(self, path: Path, name: str, config_format: str = "auto") -> None:
        super().__init__(path, name, MISTRAL, config_format)

    def tensor_headers(self) -> dict[str, TensorHeader]:
        """Headers under Hugging Face names."""
        return {
            name: replace(header, direct=interleaved_heads(name, 1, 1) is None)
            for stored, header in super().tensor_headers().items()
            for name in (hf_tensor_name(stored),)
        }

    def tensors(self, packed: bool = False) -> Iterator[tuple[str, RawTensor]]:
        """Every tensor, the rows of rotary projections in the Hugging Face order."""
        config = self.config()
        heads = (config["num_attention_heads"], config["num_key_value_heads"])
        for name, raw in super().tensors(packed):
            interleaved = interleaved_heads(name, *heads)
            if interleaved is not None:
                raw = raw._replace(array=restore_rows(raw.array, interleaved))
            yield name, raw


def hf_tensor_name(name: str) -> str:
    """The Hugging Face name of a tensor; a name this layout does not know is kept."""
    stem, _, suffix = name.rpartition(".")
    if stem in _OUTER:
        return f"{_OUTER[stem]}.{suffix}"
    match = _IN_LAYER.fullmatch(stem)
    if match is not None and match[2] in _LAYER:
        return f"model.layers.{match[1]}.{_LAYER[match[2]]}.{suffix}"
    return name
