"""BeamSearchParams and what a beam search gives."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.types.checks import check_range
from octavo.types.outputs import CompletionOutput

MAX_BEAMS = 1024


@dataclass(slots=True, kw_only=True)
class BeamSearchParams:
    """Parameters of a beam search; names and defaults are vLLM's. Raises RequestError.

    A text of T output tokens (its end-of-sequence token not counted) with the log-probability L
    scores L / T ** length_penalty: the prompt's length plays no part, and the larger the penalty,
    the longer the texts that win. `temperature` matters only where log-probabilities do depend on
    it (logprobs_mode processed_logprobs).
    """

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False  # the end-of-sequence token, too, becomes text

    def __post_init__(self) -> None:
        check_range("beam_width", self.beam_width, 1, MAX_BEAMS)
        check_range("max_tokens", self.max_tokens, 1, 1 << 31)
        check_range("temperature", self.temperature, 0.0, 2.0)
        check_range("length_penalty", self.length_penalty, -100.0, 100.0)


@dataclass(slots=True)
class BeamSearchOutput:
    """The best texts of one prompt, the best first; each has its cumulative_logprob."""

    prompt_token_ids: list[int]
    sequences: list[CompletionOutput]
