"""A sampler in NumPy that works on one row at a time: what octavo.sampling must agree with.

It is written from docs/sampling.md, with Python loops and integers where the sampler has tensor
operations, so that the two share no mistakes.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np

from octavo.types.sampling_params import SamplingParams

MASK = 0xFFFFFFFF


def _mix(x: int) -> int:
    x ^= x >> 16
    x = x * 0x7FEB352D & MASK
    x ^= x >> 15
    x = x * 0x846CA68B & MASK
    return x ^ x >> 16


def row_keys(seed: int, position: int) -> tuple[int, int]:
    low, high = seed & MASK, seed >> 32 & MASK
    key_1 = _mix(_mix(_mix(position + 0x9E3779B9 & MASK) ^ low) ^ high)
    key_2 = _mix(_mix(_mix(position + 0x3C6EF372 & MASK) ^ high) ^ low)
    return key_1, key_2


def _fold(x: np.ndarray, shift: int) -> np.ndarray:
    """x ^ (x >> shift), the shift bringing in copies of the top bit."""
    return x ^ (x.view(np.int32) >> np.int32(shift)).view(np.uint32)


@functools.lru_cache(maxsize=1 << 16)
def hash_tokens(seed: int, position: int, vocab_size: int) -> np.ndarray:
    key_1, key_2 = (np.uint32(key) for key in row_keys(seed, position))
    x = np.arange(vocab_size, dtype=np.uint32) * np.uint32(0x9E3779B1) ^ key_1
    x = _fold(x, 16) * np.uint32(0x7FEB352D)
    x = (_fold(x, 15) ^ key_2) * np.uint32(0x846CA68B)
    return _fold(x, 16)


def uniform(bits: np.ndarray) -> np.ndarray:
    """31 bits -> float32 in (0, 1)."""
    scale = np.float32(2.0**-31 * (1 - 2.0**-24))
    return (bits.astype(np.float32) + np.float32(0.5)) * scale


@dataclass
class OracleRow:
    token: int  # 0 where dead
    dead: bool  # no finite largest logit
    processed: np.ndarray  # [V] float32
    mu: float | None = None  # mirostat's, after the token


def sample_row(
    logits: np.ndarray,
    params: SamplingParams,
    prompt: list[int],
    outputs: list[int],
    seed: int,
    mu: float | None = None,
) -> OracleRow:
    """The token after prompt + outputs, from logits[V] float32.

    `mu` is mirostat's after the outputs; None before there are any.
    """
    broken = not np.isfinite(logits.max())
    x = logits.copy()
    _mask_and_bias(x, params, outputs)
    _penalize(x, params, prompt, outputs)
    subtract_repeats(x, params, prompt + outputs)
    _end_thinking(x, params, prompt, outputs)
    if broken or not np.isfinite(x.max()):
        return OracleRow(0, True, x, mu)
    if params.temperature == 0 or params.top_k == 1:
        return OracleRow(int(x.argmax()), False, x, mu)
    position = len(prompt) + len(outputs)
    if params.top_n_sigma > 0:
        bar_below_sigmas(x, params.top_n_sigma)
    x = x / np.float32(_temperature(x, params))
    _truncate(x, params)
    if params.typical_p < 1:
        keep_typical(x, params.typical_p)
    if params.xtc_probability > coin(seed, position):
        exclude_top_choices(x, params.xtc_threshold)
    if params.mirostat_mode:
        mu = 2 * params.mirostat_tau if mu is None else mu
        p = probabilities(x)
        bar_surprising(x, params.mirostat_mode, mu)
    v = uniform(hash_tokens(seed, position, len(x))).astype(np.float64)
    token = int((x - np.log(-np.log1p(-v))).argmax())
    if params.mirostat_mode:
        mu -= params.mirostat_eta * (float(-np.log2(p[token])) - params.mirostat_tau)
    return OracleRow(token, False, x, mu)


def _mask_and_bias(x: np.ndarray, params: SamplingParams, outputs: list[int]) -> None:
    if len(outputs) < params.min_tokens:
        for token in params.stop_token_ids or []:
            x[token] = -np.inf
        for token in [] if params.ignore_eos else params.eos_token_ids or []:
            x[token] = -np.inf
    if params.allowed_token_ids is not None:
        for token in set(range(len(x))) - set(params.allowed_token_ids):
            x[token] = -np.inf
    for token, bias in (params.logit_bias or {}).items():
        x[token] += np.float32(bias)
    for word in params.bad_words_token_ids or []:
        start = len(outputs) - (len(word) - 1)
        if start >= 0 and outputs[start:] == word[:-1]:
            x[word[-1]] = -np.inf


def _penalize(x: np.ndarray, params: SamplingParams, prompt: list[int], outputs: list[int]) -> None:
    repetition = np.float32(params.repetition_penalty)
    for token in set(prompt + outputs):
        x[token] = x[token] / repetition if x[token] > 0 else x[token] * repetition
    for token in set(outputs):
        x[token] -= np.float32(params.frequency_penalty) * np.float32(outputs.count(token))
        x[token] -= np.float32(params.presence_penalty)


def subtract_repeats(x: np.ndarray, params: SamplingParams, tokens: list[int]) -> None:
    """DRY: every earlier token is tried as the end of a run."""
    if params.dry_multiplier == 0:
        return
    if params.dry_penalty_last_n > 0:
        tokens = tokens[-params.dry_penalty_last_n :]
    longest: dict[int, int] = {}
    for end in range(len(tokens) - 1):
        run = 0
        while (
            run <= end
            and tokens[end - run] == tokens[-1 - run]
            and tokens[end - run] not in (params.dry_breaker_ids or [])
        ):
            run += 1
        follows = tokens[end + 1]
        longest[follows] = max(run, longest.get(follows, 0))
    for token, run in longest.items():
        if run > 0 and run >= params.dry_allowed_length:
            power = np.float32(params.dry_base) ** np.float32(run - params.dry_allowed_length)
            x[token] -= np.float32(params.dry_multiplier) * min(power, np.float32(1e30))


def _end_thinking(
    x: np.ndarray, params: SamplingParams, prompt: list[int], outputs: list[int]
) -> None:
    marks, budget = params.thinking_marks, params.thinking_token_budget
    if marks is None or budget is None:
        return
    tokens, begun, ended = prompt + outputs, 0, 0
    for end in range(1, len(tokens) + 1):
        if any(tokens[:end][-len(mark) :] == mark for mark in marks.starts):
            begun = end
        if any(tokens[:end][-len(mark) :] == mark for mark in marks.ends):
            ended = end
    if marks.inside:
        begun = max(begun, len(prompt))
        ended = ended if ended > len(prompt) else 0
    spent = len(tokens) - begun - budget
    if begun > ended and spent >= 0:
        x[:] = -np.inf
        x[marks.ends[0][min(spent, len(marks.ends[0]) - 1)]] = 0.0


def probabilities(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x.astype(np.float64) - x.max())
    return weights / weights.sum()


def entropy(x: np.ndarray) -> float:
    return -sum(p * np.log(p) for p in probabilities(x) if p > 0)


def bar_below_sigmas(x: np.ndarray, num_sigmas: float) -> None:
    sigma = x[np.isfinite(x)].astype(np.float64).std()
    x[x < x.max() - num_sigmas * sigma] = -np.inf


def _temperature(x: np.ndarray, params: SamplingParams) -> float:
    if params.dynatemp_range == 0:
        return params.temperature
    low = max(params.temperature - params.dynatemp_range, 0.01)
    high = params.temperature + params.dynatemp_range
    count = int(np.isfinite(x).sum())
    share = entropy(x) / np.log(count) if count > 1 else 0.0
    return low + (high - low) * min(max(share, 0.0), 1.0) ** params.dynatemp_exponent


def keep_typical(x: np.ndarray, wanted: float) -> None:
    p, expected = probabilities(x), entropy(x)
    with np.errstate(divide="ignore"):
        # Rounded: tokens as likely as each other are as far from what is expected.
        distance = np.abs(-np.log(p) - expected).round(9)
    mass, last = 0.0, 0.0
    for token in np.argsort(distance, kind="stable"):
        if mass >= np.float32(wanted):
            break
        mass, last = mass + p[token], distance[token]
    x[distance > last] = -np.inf


def coin(seed: int, position: int) -> float:
    """The uniform number that decides whether XTC fires: the one of token id -1."""
    key_1, key_2 = row_keys(seed, position)
    x = np.uint32(MASK * 0x9E3779B1 & MASK) ^ np.uint32(key_1)
    x = _fold(np.array([x]), 16) * np.uint32(0x7FEB352D)
    x = (_fold(x, 15) ^ np.uint32(key_2)) * np.uint32(0x846CA68B)
    return float(uniform(_fold(x, 16))[0])


def exclude_top_choices(x: np.ndarray, threshold: float) -> None:
    chosen = probabilities(x) >= np.float32(threshold)
    if chosen.any():
        x[chosen & (x > x[chosen].min())] = -np.inf


def bar_surprising(x: np.ndarray, version: int, mu: float) -> None:
    p = probabilities(x)
    if version == 2:
        with np.errstate(divide="ignore"):
            x[(-np.log2(p) > mu) & (x < x.max())] = -np.inf
        return
    kth = sorted(x, reverse=True)[estimated_top_k(p, mu) - 1]
    x[x < kth] = -np.inf


def estimated_top_k(p: np.ndarray, mu: float) -> int:
    ordered = sorted((float(value) for value in p if value > 0), reverse=True)[:100]
    steps = [np.log((i + 2) / (i + 1)) for i in range(len(ordered) - 1)]
    falls = [np.log(a / b) for a, b in itertools.pairwise(ordered)]
    s = np.dot(steps, falls) / np.dot(steps, steps) if steps else 1.0
    s = min(max(s, 1e-3), 1e3)
    size = len(p)
    share = np.log(size) if abs(s - 1) < 1e-9 else (1 - size ** (1 - s)) / (s - 1)
    log_k = (mu * np.log(2) - np.log(share)) / s
    return size if log_k >= np.log(size) else int(np.exp(max(log_k, 0.0)))


def _truncate(x: np.ndarray, params: SamplingParams) -> None:
    if not np.isfinite(x.max()):
        return
    if params.min_p > 0:
        x[x < x.max() + np.log(np.float32(params.min_p))] = -np.inf
    if params.top_k > 0:
        kth = sorted(x, reverse=True)[min(params.top_k, len(x)) - 1]
        x[x < kth] = -np.inf
    if params.top_p < 1:
        weights = np.exp(x.astype(np.float64) - x.max())
        total, mass, last = weights.sum(), 0.0, x.max()
        for token in np.argsort(-x, kind="stable"):
            if mass >= np.float32(params.top_p) * total:
                break
            mass, last = mass + weights[token], x[token]
        x[x < last] = -np.inf
