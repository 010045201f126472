"""The online-softmax step that decode and prefill attention share."""

from __future__ import annotations

import math

import triton
import triton.language as tl

LOG2E = math.log2(math.e)  # scores are kept in base-2 units, for exp2 is one instruction


@triton.jit
def attend_tile(
    q,
    k,
    v,
    visible,
    acc,
    row_max,
    row_sum,
    scale,
    soft_cap,
    MASKED: tl.constexpr,
    HAS_CAP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Fold keys k[N, D] and values v[N, D] into the state of queries q[M, D].

    visible[M, N] says which keys a query sees (read when MASKED). Scores are in base-2 units:
    `scale`, positive, holds a factor log2(e), and so does `soft_cap`, with which scores become
    cap * tanh(scores / cap). row_max[M] is the largest score so far and may be -inf; row_sum[M]
    the sum of exp2(score - row_max); acc[M, D] the values weighted alike. Returns the three anew.
    """
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if HAS_CAP:
        # tanh(x) = 1 - 2 / (exp(2x) + 1) is exact at both ends, where exp overflows or vanishes.
        scores = soft_cap * (1.0 - 2.0 / (tl.exp(2.0 * scale / soft_cap * scores) + 1.0))
        scale = 1.0
    if MASKED:
        scores = tl.where(visible, scores, float("-inf"))
    # The scale is left for the multiply-add below: one instruction less per score.
    new_max = tl.maximum(row_max, tl.max(scores, axis=1) * scale)
    # A query that has seen no key yet: subtract 0, so that exp2(-inf) is 0 and not NaN.
    shift = tl.where(new_max == float("-inf"), 0.0, new_max) if MASKED else new_max
    weights = tl.exp2(scores * scale - shift[:, None])
    decay = tl.exp2(row_max - shift)
    row_sum = row_sum * decay + tl.sum(weights, axis=1)
    acc = acc * decay[:, None]
    acc = tl.dot(weights.to(v.dtype), v, acc, input_precision=PRECISION)
    return acc, new_max, row_sum


@triton.jit
def add_sinks(row_max, row_sum, sink):
    """Add a key of logit sink[M] (base-2 units) and value zero; returns (decay of acc, row_sum)."""
    new_max = tl.maximum(row_max, sink)
    decay = tl.exp2(row_max - new_max)
    return decay, row_sum * decay + tl.exp2(sink - new_max)
