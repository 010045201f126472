"""GGUF tensor names, shapes and row orders, translated to the Hugging Face layout."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.checkpoints.gguf_families import GGUF_FAMILIES, GGUFFamily

ROPE_FREQS = "rope_freqs.weight"
ROPE_LONG, ROPE_SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
_TABLES = (ROPE_FREQS, ROPE_LONG, ROPE_SHORT)


class GGUFLayout:
    """The translation for one family, and for one model's head counts."""

    def __init__(self, family: GGUFFamily) -> None:
        self._family = family

    def name(self, gguf_name: str) -> str | None:
        """The Hugging Face name; None for a table that is configuration; else the name unchanged.

        A name this layout does not know is kept, so that the loader reports it as unexpected.
        """
        if gguf_name in _TABLES:
            return None
        stem, _, suffix = gguf_name.rpartition(".")
        if stem in self._family.outer:
            return f"{self._family.outer[stem]}.{suffix}"
        prefix, _, rest = stem.partition(".")
        index, _, part = rest.partition(".")
        module = self._family.layer.get(part)
        if prefix == "blk" and module is not None:
            return f"{self._family.layers}.{index}.{module}.{suffix}"
        return gguf_name

    def shape(self, hf_name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The Hugging Face shape of a tensor that has `shape` in the file."""
        return shape[::-1] if self.is_transposed(hf_name) else shape

    def is_transposed(self, hf_name: str) -> bool:
        """Whether a file has [outputs, inputs] where Hugging Face has [inputs, outputs]."""
        module, _, suffix = hf_name.rpartition(".")
        return suffix == "weight" and module.rpartition(".")[2] in self._family.transposed

    def is_direct(self, hf_name: str) -> bool:
        """Whether a plainly stored tensor is loaded as it is stored."""
        moved = self._interleaved(hf_name, 1, 1) is not None or self._is_by_part(hf_name)
        return not (moved or self.is_transposed(hf_name) or self._holds_one_more(hf_name))

    def restore(
        self, hf_name: str, array: NDArray[Any], num_heads: int, num_kv_heads: int
    ) -> NDArray[Any]:
        """A tensor in the Hugging Face layout; packed rows move like others."""
        heads = self._interleaved(hf_name, num_heads, num_kv_heads)
        if heads is not None:
            return restore_rows(array, heads)
        if self._is_by_part(hf_name):
            return rows_by_head(array, num_heads)
        if self._holds_one_more(hf_name):
            return array - 1
        return np.ascontiguousarray(array.T) if self.is_transposed(hf_name) else array

    def _interleaved(self, hf_name: str, num_heads: int, num_kv_heads: int) -> int | None:
        if self._family.rows != "interleaved":
            return None
        return interleaved_heads(hf_name, num_heads, num_kv_heads)

    def _is_by_part(self, hf_name: str) -> bool:
        return self._family.rows == "by_part" and ".query_key_value." in hf_name

    def _holds_one_more(self, hf_name: str) -> bool:
        return self._family.norms_hold_one_more and hf_name.endswith("norm.weight")


def hf_tensor_name(gguf_name: str, arch: str = "llama") -> str | None:
    """GGUFLayout.name for a general.architecture."""
    return GGUFLayout(GGUF_FAMILIES[arch]).name(gguf_name)


def interleaved_heads(hf_name: str, num_heads: int, num_kv_heads: int) -> int | None:
    """How many heads a rotary projection interleaves; None for other tensors."""
    if ".self_attn.q_proj." in hf_name:
        return num_heads
    if ".self_attn.k_proj." in hf_name:
        return num_kv_heads
    return None


def restore_rows(array: NDArray[Any], num_heads: int) -> NDArray[Any]:
    """Undo the row order in which rotary pairs are neighbours.

    Converters turn each head's rows [first half, second half] (the Hugging Face order, pairs half
    a head apart) into [pair 0, pair 1, ...]. Rows are whole in every block type, so packed rows
    move the same way. array: [rows, ...].
    """
    rows, rest = array.shape[0], array.shape[1:]
    pairs = array.reshape(num_heads, rows // num_heads // 2, 2, *rest)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, *rest)


def rows_by_head(array: NDArray[Any], num_heads: int) -> NDArray[Any]:
    """Rows [all queries, all keys, all values] as, head by head, its query, key and value."""
    parts = array.reshape(3, num_heads, -1, *array.shape[1:])
    return np.ascontiguousarray(parts.swapaxes(0, 1)).reshape(array.shape)
