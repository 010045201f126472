"""Where a sequence repeats itself, in plain PyTorch, for every device: what DRY works on.

Shapes: U rows of sequences, W columns (positions). Row u is the sequence tokens[u, :lengths[u]];
what follows means nothing. `runs[u, i]` is how many tokens up to and with position i equal as many
at the end of the sequence: 0 where tokens[u, i] is not the last token. A run never holds a breaker.
"""

from __future__ import annotations

import torch
from torch import Tensor


def extend_runs(runs: Tensor, tokens: Tensor, new: Tensor, breaks: Tensor) -> Tensor:
    """[U, W] int32: the runs when the sequences have grown by a token new[U].

    runs[U, W] int32 is of the sequences before. tokens[U, W] may hold the new one at its position
    or not: the end is no earlier place, and nobody looks at its run. breaks[U] bool: the new token
    is a breaker.
    """
    grown = torch.ones_like(runs)
    grown[:, 1:] += runs[:, :-1]
    return grown.masked_fill_((tokens != new[:, None]) | breaks[:, None], 0)


def repeat_penalties(
    runs: Tensor,
    tokens: Tensor,
    lengths: Tensor,
    windows: Tensor,
    allowed_lengths: Tensor,
    factors: tuple[Tensor, Tensor],
    num_tokens: int,
) -> tuple[Tensor, Tensor]:
    """(token ids [U, W] int64, what to subtract from each [U, W] float32).

    A token that would go on with a run of L >= allowed_lengths[U] tokens is to lose
    multiplier * base ** (L - allowed_length), L the longest one; factors: (multiplier [U], base
    [U]). Only the last windows[U] of lengths[U] tokens are looked at. A token may be named more
    than once, with the same value; padding names token 0 with its own value.
    """
    ends = torch.arange(runs.shape[1], device=runs.device)
    first = (lengths - windows).clamp_(min=0)[:, None]
    inside = (ends >= first) & (ends < lengths[:, None] - 1)
    run = torch.minimum(runs, (ends - first + 1).to(runs.dtype)).masked_fill_(~inside, 0)
    follows = tokens.roll(-1, dims=1).to(torch.int64).masked_fill_(~inside, 0)
    longest = run.new_zeros(run.shape[0], num_tokens)
    longest.scatter_reduce_(1, follows, run, "amax")
    length = longest.gather(1, follows)
    multiplier, base = (factor[:, None] for factor in factors)
    # Beyond float32 a penalty is as good as a bar, but minus infinity would be a broken row.
    powers = torch.pow(base, (length - allowed_lengths[:, None]).float()).clamp_(max=1e30)
    applies = (length >= allowed_lengths[:, None]) & (length > 0)
    return follows, (multiplier * powers).masked_fill_(~applies, 0.0)
