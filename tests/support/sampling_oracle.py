"""A sampler in NumPy that works on one row at a time: what octavo.sampling must agree with.

It is written from docs/sampling.md, with Python loops and integers where the sampler has tensor
operations, so that the two share no mistakes.
"""

from __future__ import annotations

import functools
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


def sample_row(
    logits: np.ndarray,
    params: SamplingParams,
    prompt: list[int],
    outputs: list[int],
    seed: int,
) -> OracleRow:
    """The token after prompt + outputs, from logits[V] float32."""
    broken = not np.isfinite(logits.max())
    x = logits.copy()
    _mask_and_bias(x, params, outputs)
    _penalize(x, params, prompt, outputs)
    greedy = params.temperature == 0 or params.top_k == 1
    if not greedy:
        x = x / np.float32(params.temperature)
        _truncate(x, params)
    if broken or not np.isfinite(x.max()):
        return OracleRow(0, True, x)
    if greedy:
        return OracleRow(int(x.argmax()), False, x)
    v = uniform(hash_tokens(seed, len(prompt) + len(outputs), len(x))).astype(np.float64)
    return OracleRow(int((x - np.log(-np.log1p(-v))).argmax()), False, x)


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
