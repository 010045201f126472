"""Top logprobs of sampled tokens and of prompt tokens, a bounded number of rows at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from octavo.sampling.interface import SamplingKernels
from octavo.sampling.logprob_tensors import LOGPROB_FLOOR, LogprobTensors

# Rows of logits whose log_softmax exists at one time.
CHUNK_ROWS = 64


def gather_logprobs(
    kernels: SamplingKernels,
    logits: Tensor,
    token_ids: Tensor,
    rows: list[int],
    num_top: list[int],
    *,
    normalize: bool = True,
) -> list[LogprobTensors]:
    """Logprobs of token_ids[L] and of the num_top[i] likeliest tokens: logits[L, V].

    `rows[i]` is the row that entry i is for. Without `normalize` the values are logits. The cost
    is that of the largest `num_top`, so rows that want all V tokens are better asked for apart.
    """
    parts = []
    for start in range(0, len(rows), CHUNK_ROWS):
        span = slice(start, start + CHUNK_ROWS)
        tops = num_top[span]
        ids, values, ranks = kernels.top_logprobs(
            logits[span], token_ids[span], max(tops), normalize
        )
        width = ids.shape[1]
        part = LogprobTensors(
            rows[span],
            [i * width for i in range(len(tops))],
            [1 + top for top in tops],
            ids.to(torch.int32).reshape(-1),
            values.nan_to_num(nan=LOGPROB_FLOOR, neginf=LOGPROB_FLOOR)
            .clamp_(min=LOGPROB_FLOOR)
            .reshape(-1),
            ranks.to(torch.int32),
        )
        parts.append(part)
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
        logits = compute_logits(hidden[start : start + CHUNK_ROWS]).float()
        count, vocab_size = logits.shape
        top = vocab_size if num_top == -1 else min(num_top, vocab_size)
        parts += gather_logprobs(
            kernels,
            logits,
            target_ids[start : start + count],
            list(range(start, start + count)),
            [top] * count,
        )
    return LogprobTensors.join(parts)
