"""GGUF element types: their block sizes, and dequantization to float32."""

from __future__ import annotations

from typing import Any, cast

import gguf
import numpy as np
from numpy.typing import NDArray

from octavo.types.errors import CheckpointError


def dequantize(name: str, dtype: str, rows: NDArray[np.uint8]) -> NDArray[Any]:
    """Float32 values of a quantized tensor, shape [..., elements of a row].

    `rows` are the stored blocks, uint8 [..., bytes of a row].
    """
    try:
        kind = gguf.GGMLQuantizationType[dtype]
        return cast("NDArray[Any]", gguf.quants.dequantize(rows, kind))
    except (KeyError, NotImplementedError) as error:
        raise CheckpointError(
            f"{name} has the GGUF type {dtype}, which the gguf package can't dequantize; "
            "use a file of another quantization, such as Q8_0 or Q4_K"
        ) from error
