"""Which tensors of a checkpoint will be kept packed, and in how many bytes."""

from __future__ import annotations

from typing import Literal

from octavo.checkpoints.gguf_codes import CODE_FORMS
from octavo.checkpoints.group_codes import INT4, INT8, SPAN, CodeForm

# Two-dimensional tensors that no product reads: norms per head, and vectors of positions and of
# kinds of text.
_TABLES = ("norm", "position", "wpe.", "token_type")


def packed_bytes(
    quantization: Literal["int8", "int4", "gguf"] | None,
    name: str,
    shape: tuple[int, ...],
    dtype: str | None,
    *,
    is_vocabulary: bool,
) -> int | None:
    """Memory of one tensor, None if it is kept as numbers.

    `dtype` is the checkpoint's name of the element type; `is_vocabulary`: an embedding of tokens
    or an output layer.
    """
    if quantization is None or len(shape) != 2 or any(table in name for table in _TABLES):
        return None
    form = _form(quantization, dtype, is_vocabulary)
    rows, inputs = shape
    return None if form is None or inputs % SPAN else form.num_bytes(rows, inputs)


def _form(quantization: str, dtype: str | None, is_vocabulary: bool) -> CodeForm | None:
    if quantization == "gguf":
        return CODE_FORMS.get(dtype or "")
    return INT4 if quantization == "int4" and not is_vocabulary else INT8
