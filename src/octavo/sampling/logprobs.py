"""Top logprobs of sampled tokens and of prompt tokens, a bounded number of rows at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from octavo.sampling.interface import SamplingKernels
from octavo.sampling.logprob_tensors import LOGPROB_FLOOR, LogprobTensors
from octavo.sampling.row_filters import RowSubset

# Rows of logits whose log_softmax exists at one time.
CHUNK_ROWS = 64


def gather_logprobs(
    kernels: SamplingKernels,
    logits: Tensor,
    token_ids: Tensor,
    subset: RowSubset,
    num_top: list[int],
    *,
    normalize: bool = True,
) -> list[LogprobTensors]:
    """Logprobs of token_ids[R] and of the likeliest tokens, of logits[R, V] of any float dtype.

    Entry i is of row subset.rows[i] and has the num_top[i] likeliest. Without `normalize` the
    values are logits. The cost is that of the largest `num_top`, so rows that want all V tokens
    are better asked for apart. Copies are made of CHUNK_ROWS rows at a time.
    """
    parts = []
    for start in range(0, len(subset.rows), CHUNK_ROWS):
        span = slice(start, start + CHUNK_ROWS)
        tops = num_top[span]
        if subset.index is None:
            scored, chosen = logits[span], token_ids[span]
        else:
            scored, chosen = logits[subset.index[span]], token_ids[subset.index[span]]
        ids, values, ranks = kernels.top_logprobs(scored, chosen, max(tops), normalize)
        parts.append(_entries(subset.rows[span], tops, ids, values, ranks))
    return parts


def prompt_logprobs(
    kernels: SamplingKernels,
    hidden: Tensor,
    target_ids: Tensor,
    num_top: int,
    compute_logits: Callable[[Tensor], Tensor],
) -> LogprobTensors | None:
    """Logprobs of prompt tokens: hidden[N, H] predict target_ids[N] int64.

    `num_top` is the request's prompt_logprobs, -1 for the whole vocabulary. The rows of the
    result are 0..N-1, it is None for N = 0. Logits exist for CHUNK_ROWS positions at a time, and
    are never processed: prompt logprobs are raw ones in every logprobs mode.
    """
    parts = []
    for start in range(0, hidden.shape[0], CHUNK_ROWS):
        logits = compute_logits(hidden[start : start + CHUNK_ROWS])
        count, vocab_size = logits.shape
        top = vocab_size if num_top == -1 else min(num_top, vocab_size)
        ids, values, ranks = kernels.top_logprobs(
            logits, target_ids[start : start + count], top, True
        )
        rows = list(range(start, start + count))
        parts.append(_entries(rows, [top] * count, ids, values, ranks))
    return LogprobTensors.join(parts)


def _entries(
    rows: list[int], num_top: list[int], ids: Tensor, values: Tensor, ranks: Tensor
) -> LogprobTensors:
    """What `SamplingKernels.top_logprobs` gave for some rows, as entries."""
    width = ids.shape[1]
    return LogprobTensors(
        rows,
        [i * width for i in range(len(rows))],
        [1 + top for top in num_top],
        ids.to(torch.int32).reshape(-1),
        values.nan_to_num(nan=LOGPROB_FLOOR, neginf=LOGPROB_FLOOR)
        .clamp_(min=LOGPROB_FLOOR)
        .reshape(-1),
        ranks.to(torch.int32),
    )
