"""Stages of sampling that few requests use, in plain PyTorch, for every device.

Each works on rows x[U, V] float32 gathered for it, in which barred tokens are minus infinity, and
says which more are to be barred: [U, V] bool. None changes a logit that stays. Every result is a
function of its own row only, bit for bit: softmaxes and maxima, which PyTorch never splits, and
sums by halves (`row_sums`), whose order depends on V alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Likeliest tokens from which mirostat 1 estimates the exponent of Zipf's law: the paper's m.
MIROSTAT_TOKENS = 100


def row_sums(x: Tensor) -> Tensor:
    """[U]: the sum of each row of x[U, V], by halves; the error grows with log V only."""
    while x.shape[1] > 1:
        half = x.shape[1] // 2
        sums = x[:, :half] + x[:, half : 2 * half]
        if x.shape[1] % 2:
            sums[:, 0] += x[:, -1]
        x = sums
    return x[:, 0]


def top_n_sigma(x: Tensor, num_sigmas: Tensor) -> Tensor:
    """Bars logits more than num_sigmas[U] standard deviations below the row's largest.

    The deviation is that of the logits not barred. Tang et al. 2024, "Top-n-sigma: Not All Logits
    Are You Need" (arXiv 2411.07641).
    """
    there = x > -torch.inf
    count = there.sum(dim=-1)
    mean = row_sums(x.masked_fill(~there, 0.0)) / count
    deviations = (x - mean[:, None]).masked_fill_(~there, 0.0)
    sigma = (row_sums(deviations.square_()) / count).sqrt_()
    return x < (x.amax(dim=-1) - num_sigmas * sigma)[:, None]


def dynamic_temperatures(x: Tensor, low: Tensor, high: Tensor, exponent: Tensor) -> Tensor:
    """[U]: low + (high - low) * h ** exponent, h the row's entropy over the largest possible.

    The largest is that of as many tokens, all equally likely. As in llama.cpp and KoboldCpp's
    "entropy sampling".
    """
    count = (x > -torch.inf).sum(dim=-1)
    entropy, _ = _entropy(x)
    # A single token has no entropy, whatever it is divided by.
    share = (entropy / count.clamp(min=2).log()).clamp_(0.0, 1.0)
    return low + (high - low) * share**exponent


def typical(x: Tensor, mass: Tensor) -> Tensor:
    """Keeps the tokens whose surprise is nearest to the entropy, until they have mass[U].

    Tokens as near as the last one kept are kept too. Meister et al. 2022, "Locally Typical
    Sampling" (arXiv 2202.00666).
    """
    entropy, logprobs = _entropy(x)
    distance = (logprobs + entropy[:, None]).abs_()
    ordered, order = distance.sort(dim=-1, stable=True)
    before = logprobs.exp_().gather(1, order).to(torch.float64).cumsum(dim=-1)
    kept = torch.ones_like(ordered, dtype=torch.bool)
    kept[:, 1:] = before[:, :-1] < mass[:, None]
    last = ordered.gather(1, kept.sum(dim=-1, keepdim=True) - 1)
    return distance > last


def exclude_top_choices(x: Tensor, threshold: Tensor, fires: Tensor) -> Tensor:
    """Where fires[U] bool, bars all tokens of at least threshold[U] probability but the least
    likely of them, and those as likely as it.

    A single such token stays. XTC: p-e-w, text-generation-webui pull request 6335.
    """
    chosen = x.softmax(dim=-1) >= threshold[:, None]
    least = x.masked_fill(~chosen, torch.inf).amin(dim=-1)
    return chosen & (x > least[:, None]) & fires[:, None]


def mirostat(x: Tensor, mu: Tensor) -> Tensor:
    """Bars tokens with a surprise of more than mu[U] bits; the likeliest stays.

    Version 2 of mirostat: Basu et al. 2021 (arXiv 2007.14966), and the authors' later note on
    doing without an estimate of k.
    """
    surprise = x.log_softmax(dim=-1).mul_(-1 / math.log(2))
    return (surprise > mu[:, None]) & (x < x.amax(dim=-1, keepdim=True))


def mirostat_top_k(x: Tensor, mu: Tensor) -> Tensor:
    """[U] int64 in [1, V]: the k of top-k that gives a surprise of mu[U] bits on average.

    Version 1 of mirostat: Basu et al. 2021, algorithm 1. The probabilities of a text's words fall
    as rank ** -s (Zipf), and s is fitted to those of the likeliest MIROSTAT_TOKENS.
    """
    num_tokens = x.shape[1]
    top = x.log_softmax(dim=-1).topk(min(MIROSTAT_TOKENS, num_tokens), dim=-1).values
    ranks = torch.arange(1, top.shape[1], dtype=torch.float64, device=x.device)
    steps = ((ranks + 1) / ranks).log()
    falls = (top[:, :-1] - top[:, 1:]).to(torch.float64)
    # Barred tokens tell nothing of s.
    known = falls.isfinite()
    weights = steps * known
    s = row_sums(weights * falls.masked_fill_(~known, 0.0)) / row_sums(weights * steps)
    s = s.nan_to_num_(nan=1.0).clamp_(1e-3, 1e3)
    excess = s - 1
    log_tokens = math.log(num_tokens)
    # (1 - V ** -excess) / excess, which has a limit where excess is 0.
    share = torch.where(
        excess.abs() < 1e-9, log_tokens, -torch.expm1(-excess * log_tokens) / excess
    )
    k = ((mu.to(torch.float64) * math.log(2) - share.log()) / s).exp_()
    return k.clamp_(1, num_tokens).to(torch.int64)


def surprises(x: Tensor, token_ids: Tensor, log_totals: Tensor) -> Tensor:
    """[U]: the bits that token_ids[U] tell, where log_totals[U] is the log of sum exp(x)."""
    return (log_totals - x.gather(1, token_ids[:, None])[:, 0]) / math.log(2)


def log_totals(x: Tensor) -> Tensor:
    """[U]: log of sum exp(x) of each row."""
    largest = x.amax(dim=-1)
    # The softmax of the largest logit is exp(largest) / sum exp(x).
    return largest - x.softmax(dim=-1).amax(dim=-1).log_()


def _entropy(x: Tensor) -> tuple[Tensor, Tensor]:
    """(entropy [U] in nats, logprobs [U, V]) of each row."""
    logprobs = x.log_softmax(dim=-1)
    terms = logprobs.exp().mul_(logprobs)
    # 0 * log 0 is 0.
    return -row_sums(terms.masked_fill_(logprobs == -torch.inf, 0.0)), logprobs
