"""SchedulerLimits: the numbers a scheduler works within, and the requests they rule out."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.core.kv.planning import tokens_ahead
from octavo.types.errors import ConfigError, RequestError
from octavo.types.request import EngineCoreRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """Sizes in tokens unless said otherwise; raises ConfigError if one is out of range."""

    max_num_batched_tokens: int  # of one step
    max_num_seqs: int  # requests
    num_slots: int  # rows of the device's request table
    max_model_len: int
    max_concurrent_steps: int  # steps
    long_prefill_token_threshold: int  # most of one prefill per step; 0: no limit
    enable_chunked_prefill: bool
    num_speculative_tokens: int  # drafts of one decode row

    def __post_init__(self) -> None:
        for name in (
            "max_num_batched_tokens",
            "max_num_seqs",
            "num_slots",
            "max_model_len",
            "max_concurrent_steps",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")

    @property
    def max_running(self) -> int:
        """Requests; their decode rows always fit the budget together, so that none starves."""
        rows_in_budget = self.max_num_batched_tokens // (1 + self.num_speculative_tokens)
        return min(self.max_num_seqs, max(rows_in_budget, 1))

    @property
    def max_tokens_ahead(self) -> int:
        """See `planning.tokens_ahead`."""
        return tokens_ahead(
            self.max_num_batched_tokens, self.max_concurrent_steps, self.num_speculative_tokens
        )

    @property
    def max_forced_row(self) -> int:
        """The most tokens of a row that a grammar has left no choice about.

        Such rows may be in all steps in flight, and together hold no more than `max_tokens_ahead`.
        """
        return max((self.max_tokens_ahead - 1) // self.max_concurrent_steps, 1)

    @property
    def max_chunk(self) -> int:
        """The most tokens of one prefill in one step, the budget aside."""
        if self.enable_chunked_prefill and self.long_prefill_token_threshold:
            return self.long_prefill_token_threshold
        return self.max_model_len

    def may_split(self, num_tokens: int) -> bool:
        """Whether a prefill of so many tokens may be computed in several steps.

        With chunked prefill off only what no step can hold: a resumed request (prompts of that
        length are refused).
        """
        return self.enable_chunked_prefill or num_tokens > self.max_num_batched_tokens

    def check(self, new: EngineCoreRequest) -> None:
        """Raise RequestError if the request could never run to its end."""
        num_tokens, num_prompt = len(new.token_ids), new.num_prompt_tokens
        what = f"request {new.request_id}"
        if not 0 < num_prompt <= num_tokens:
            raise RequestError(
                f"{what}: num_prompt_tokens={num_prompt} of {num_tokens} tokens; the prompt must "
                "have at least one token and be among token_ids",
                "prompt",
            )
        if num_prompt + bool(new.max_tokens) > self.max_model_len:
            raise RequestError(
                f"{what}: the prompt has {num_prompt} tokens, which leaves no room in "
                f"max_model_len={self.max_model_len}; shorten it",
                "prompt",
            )
        if num_tokens > num_prompt and num_tokens >= min(
            num_prompt + new.max_tokens, self.max_model_len
        ):
            raise RequestError(
                f"{what}: has {num_tokens - num_prompt} output tokens already, with "
                f"max_tokens={new.max_tokens} and max_model_len={self.max_model_len}",
                "max_tokens",
            )
        if not self.enable_chunked_prefill and num_prompt > self.max_num_batched_tokens:
            raise RequestError(
                f"{what}: the prompt has {num_prompt} tokens, more than "
                f"max_num_batched_tokens={self.max_num_batched_tokens}, and chunked prefill is "
                "off; shorten it, raise the limit or set enable_chunked_prefill",
                "prompt",
            )
