"""Floors: the least time that a rung's bytes and operations take on the hardware."""

from __future__ import annotations

import math
from dataclasses import dataclass

from octavo.bench.rungs import Group, Rung
from octavo.config.architectures import SLIDING_ATTENTION
from octavo.config.octavo_config import OctavoConfig
from octavo.engine.byte_counts import EMBEDDING, OUTPUT, tensor_shapes, weight_bytes
from octavo.types.kv_spec import DTYPE_BYTES


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the device reaches in one large sum and in one large bf16 product."""

    bandwidth: float  # bytes/s
    rate: float  # FLOP/s


# Measured, by a part of the device's name; other devices need the options.
KNOWN_HARDWARE = {"H200": Hardware(4476e9, 790e12)}


def find_hardware(
    device_name: str, bandwidth_gbs: float | None, rate_tflops: float | None
) -> Hardware | None:
    """What was given, else what is known of the device; None if either is missing."""
    known = next((hw for part, hw in KNOWN_HARDWARE.items() if part in device_name), None)
    bandwidth = bandwidth_gbs * 1e9 if bandwidth_gbs else known and known.bandwidth
    rate = rate_tflops * 1e12 if rate_tflops else known and known.rate
    return Hardware(bandwidth, rate) if bandwidth and rate else None


class ModelCost:
    """Bytes and operations of a model's forward pass."""

    def __init__(self, config: OctavoConfig) -> None:
        arch = config.model.arch
        sizes = weight_bytes(config)
        # Rows of an embedding table are looked up; a tied one is read whole, as the output layer.
        unread = OUTPUT if arch.tie_word_embeddings else EMBEDDING
        self.weight_bytes = sum(size for part, size in sizes.items() if part != unread)
        self._windows = [
            arch.sliding_window if kind == SLIDING_ATTENTION else None for kind in arch.layer_types
        ]
        per_token = 2 * arch.num_kv_heads * arch.head_size
        self._kv_bytes = per_token * DTYPE_BYTES[config.cache.kv_cache_dtype]
        self._attention_flops = 4 * arch.num_heads * arch.head_size
        head = arch.vocab_size * arch.hidden_size
        self._head_flops = 2 * head
        matrices = [shape for _, shape in tensor_shapes(arch) if len(shape) == 2]
        tables = head if arch.tie_word_embeddings else 2 * head
        self._token_flops = 2 * (sum(map(math.prod, matrices)) - tables)

    def kv_read(self, context: float) -> float:
        """Bytes of keys and values that one row reads at a context of so many tokens."""
        seen = [context if w is None else min(context, w) for w in self._windows]
        return self._kv_bytes * sum(seen)

    def row_flops(self, context: float) -> float:
        """Operations of one decode row."""
        seen = sum(context if w is None else min(context, w) for w in self._windows)
        return self._token_flops + self._head_flops + self._attention_flops * seen

    def prefill_flops(self, tokens: float, begin: float = 0.0) -> float:
        """Operations of the prompt tokens [begin, begin + tokens), and of the first output."""
        end = begin + tokens
        pairs = sum(_pairs(end, w) - _pairs(begin, w) for w in self._windows)
        return self._token_flops * tokens + self._attention_flops * pairs + self._head_flops


def _pairs(length: float, window: int | None) -> float:
    """Query-key pairs of causal attention over `length` tokens."""
    if window is None or length <= window:
        return length * (length + 1) / 2
    return window * (window + 1) / 2 + (length - window) * window


def floors(rung: Rung, cost: ModelCost, hardware: Hardware) -> dict[str, float]:
    """Figure -> its bound (the least time, or the most tokens per second), where there is one.

    A step takes the larger of its bytes over the bandwidth and its operations over the rate; in
    mixed work, a prompt's operations add to the bytes of the decode steps.
    """
    if rung.kind == "decode":
        return {"time per token": 1e3 * _decode_step(rung, cost, hardware)}
    if rung.kind == "prefill":
        seconds = max(_prompts(rung, cost, hardware), cost.weight_bytes / hardware.bandwidth)
        tokens = sum(group.count * group.lengths.mean for group in rung.groups)
        return {"time": 1e3 * seconds} if rung.count == 1 else {"input": tokens / seconds}
    if rung.kind == "batch":
        return {"output": rung.count * rung.output.mean / _whole(rung, cost, hardware)}
    if rung.kind == "prefix":
        return {"time": _whole(rung, cost, hardware)}
    if rung.kind == "serve":
        bounds = {"output": rung.count * rung.output.mean / _whole(rung, cost, hardware)}
        if rung.count == 1:
            first = max(_prompts(rung, cost, hardware), cost.weight_bytes / hardware.bandwidth)
            bounds |= dict.fromkeys(("TTFT mean", "TTFT median"), 1e3 * first)
            bounds["TPOT median"] = 1e3 * _decode_step(rung, cost, hardware)
        return bounds
    return {}


def _decode_step(rung: Rung, cost: ModelCost, hardware: Hardware) -> float:
    """Seconds of the middle one of a rung's decode steps."""
    num_bytes, flops = float(cost.weight_bytes), 0.0
    for group, context in _contexts(rung):
        num_bytes += group.count * cost.kv_read(context)
        flops += group.count * cost.row_flops(context)
    return max(num_bytes / hardware.bandwidth, flops / hardware.rate)


def _contexts(rung: Rung) -> list[tuple[Group, float]]:
    return [(group, group.lengths.mean + rung.output.mean / 2) for group in rung.groups]


def _prompts(rung: Rung, cost: ModelCost, hardware: Hardware) -> float:
    """Seconds of the prompts' operations, less what they share."""
    flops = sum(
        group.count * cost.prefill_flops(group.lengths.mean, rung.shared) for group in rung.groups
    )
    return flops / hardware.rate


def _whole(rung: Rung, cost: ModelCost, hardware: Hardware) -> float:
    """Seconds of prompts and outputs; a shared prefix is read once a step."""
    steps = rung.output.high - 1  # the first token comes with the prompt
    shared = cost.kv_read(rung.shared) * steps
    # An answer of n tokens reads its context n times, which grows to prompt + n.
    grown = rung.output.mean_square / (2 * rung.output.mean)
    own = sum(
        group.count * rung.output.mean * cost.kv_read(group.lengths.mean + grown)
        for group in rung.groups
    )
    num_bytes = steps * cost.weight_bytes + shared + own
    return _prompts(rung, cost, hardware) + num_bytes / hardware.bandwidth
