"""Scores of pairs: which texts go together, and how alike their embeddings are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from octavo.types.errors import RequestError


def pair_up(
    first: Sequence[str], second: Sequence[str], names: tuple[str, str]
) -> list[tuple[str, str]]:
    """The pairs to score: one first text with every second one, or one by one.

    Raises RequestError naming the field at fault.
    """
    for texts, name in zip((first, second), names, strict=True):
        if not texts:
            raise RequestError(f"{name} is empty; give at least one text", name)
    if len(first) == 1:
        return [(first[0], text) for text in second]
    if len(first) != len(second):
        raise RequestError(
            f"{names[0]} has {len(first)} texts and {names[1]} has {len(second)}; give one or as "
            "many",
            names[0],
        )
    return list(zip(first, second, strict=True))


def cosine(first: npt.NDArray[np.float32], second: npt.NDArray[np.float32]) -> float:
    """The cosine of the angle between two vectors; 0 if one of them is zero."""
    length = float(np.linalg.norm(first)) * float(np.linalg.norm(second))
    return float(first @ second) / length if length else 0.0
