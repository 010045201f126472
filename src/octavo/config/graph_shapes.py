"""Which steps besides plain decode ones get CUDA graphs, and which graphs a start makes."""

from __future__ import annotations

from collections.abc import Sequence

# Rows of the plain decode graphs that most traffic begins with.
AT_START = (1, 8, 32, 64, 128, 256)
# Shapes of mixed steps worth a graph: above, the device takes longer than launching does.
MIXED_ROWS = (16, 64, 256)
MIXED_TOKENS = (32, 64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024)


def graphs_at_start(decode_rows: Sequence[int]) -> list[int]:
    """Rows of the plain decode graphs captured before the first request."""
    return [rows for rows in AT_START if rows in decode_rows]


def mixed_rows(max_rows: int) -> list[int]:
    """Row counts of mixed graphs."""
    return [rows for rows in MIXED_ROWS if rows <= max_rows]


def mixed_tokens(max_tokens: int) -> list[int]:
    """Token counts of mixed graphs."""
    return [tokens for tokens in MIXED_TOKENS if tokens <= max_tokens]


def mixed_shapes(max_rows: int, max_tokens: int) -> list[tuple[int, int]]:
    """(rows, tokens) of every mixed graph; rows of such a step have two tokens or more."""
    return [
        (rows, tokens)
        for rows in mixed_rows(max_rows)
        for tokens in mixed_tokens(max_tokens)
        if tokens >= 2 * rows
    ]
