"""SchedulerConfig: how many requests and tokens a step takes, and in which order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from octavo.config.options import option


@dataclass(frozen=True, kw_only=True)
class SchedulerOptions:
    """What may be asked about scheduling."""

    max_num_batched_tokens: int | None = option(
        None,
        "Most tokens one step computes. By default, for the server and for LLM: 8192 and 16384 "
        "on a GPU of 70 GiB or more (save the A100), 2048 and 8192 on others, 2048 and 4096 on a "
        "CPU.",
        low=1,
        high=2**24,
    )
    max_num_seqs: int | None = option(
        None,
        "Most requests that run at once. By default 1024 on a GPU of 70 GiB or more (save the "
        "A100), 256 on others; on a CPU 128 for the server and 256 for LLM.",
        low=1,
        high=2**16,
    )
    long_prefill_token_threshold: int = option(
        0, "Most prompt tokens one request computes in a step; 0: no limit of its own.", low=0
    )
    scheduling_policy: Literal["fcfs", "priority"] = option(
        "fcfs",
        "Order of waiting requests: first come first served, or by `priority` (lower first), then "
        "arrival.",
    )
    itl_target_ms: float | None = option(
        None,
        "Milliseconds that a token of a running stream should wait for at most: prompts are taken "
        "in parts small enough for steps with running requests to stay below. 0: no target. By "
        "default 50 for the server on a GPU with chunked prefill, else 0.",
        low=0.0,
    )
    enable_chunked_prefill: bool = option(
        True, "Let a prompt longer than what is left of a step be computed over several steps."
    )
    async_scheduling: bool = option(
        True, "Prepare the next step while one runs (two steps in flight)."
    )
    max_waiting_requests: int | None = option(
        None,
        "Most requests that wait for a place; more are refused (HTTP 503). By default no limit.",
        low=1,
    )
    stream_interval: int = option(
        1, "Tokens between two outputs of a stream; the first comes at once.", low=1
    )


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig(SchedulerOptions):
    """The scheduler's limits as they will be."""

    max_num_batched_tokens: int = field()
    max_num_seqs: int = field()
    itl_target_ms: float = field()  # 0: none

    @property
    def max_concurrent_steps(self) -> int:
        """Steps in flight at once."""
        return 2 if self.async_scheduling else 1

    @property
    def num_slots(self) -> int:
        """Rows of the request table: a finished request keeps its slot while a step has it."""
        return self.max_num_seqs * self.max_concurrent_steps

    @property
    def max_tokens_ahead(self) -> int:
        """Most tokens a request holds blocks for beyond those known to be computed.

        A prefill chunk takes at most the step's budget; decode steps in flight take one each.
        """
        return max(self.max_num_batched_tokens, self.max_concurrent_steps + 1)
