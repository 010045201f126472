"""BeamSearch: which continuations of a prompt are kept from token to token."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from octavo.config.octavo_config import OctavoConfig
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.beam_search import BeamSearchParams
from octavo.types.errors import GenerationError, RequestError
from octavo.types.outputs import CompletionOutput, RequestOutput
from octavo.types.sampling_params import RequestOutputKind, SamplingParams


@dataclass(frozen=True, slots=True)
class Beam:
    """Output tokens, the sum of their log-probabilities, and why they ended, if they have."""

    token_ids: tuple[int, ...] = ()
    logprob: float = 0.0
    finish_reason: str | None = None

    def score(self, length_penalty: float) -> float:
        """See BeamSearchParams; an end-of-sequence token is not counted."""
        length = len(self.token_ids) - (self.finish_reason == "stop")
        # An output that is only an end has no length: it counts as the shortest that has one.
        return float(self.logprob / max(length, 1) ** length_penalty)


class BeamSearch:
    """The beams of one prompt. The engine computes: for each of `live` the likeliest tokens.

    Every beam is a request for one token, its prompt the prompt and the beam's tokens; what beams
    have in common they find in the prefix cache, block by block.
    """

    def __init__(
        self,
        prompt_token_ids: Sequence[int],
        params: BeamSearchParams,
        eos_token_ids: Iterable[int],
        max_model_len: int,
    ) -> None:
        """Raises RequestError for a prompt that leaves no room."""
        self.prompt_token_ids = list(prompt_token_ids)
        room = max_model_len - len(self.prompt_token_ids)
        if room < 1 or not self.prompt_token_ids:
            raise RequestError(
                f"the prompt has {len(self.prompt_token_ids)} tokens; 1 to {max_model_len - 1} "
                f"leave room for an output (max_model_len={max_model_len})",
                "prompt",
            )
        self.live: list[Beam] = [Beam()]
        self._ended: list[Beam] = []
        self._params = params
        self._max_tokens = min(params.max_tokens, room)
        self._eos = frozenset(() if params.ignore_eos else eos_token_ids)

    def prompts(self) -> list[list[int]]:
        """What to compute the next tokens of, one per live beam."""
        return [[*self.prompt_token_ids, *beam.token_ids] for beam in self.live]

    def advance(self, outputs: Sequence[RequestOutput]) -> None:
        """Take the engine's answers to `prompts`, in order. Raises GenerationError."""
        width = self._params.beam_width
        grown: list[Beam] = []
        for beam, output in zip(self.live, outputs, strict=True):
            for token, logprob in _likeliest(output, 2 * width):
                tokens, total = (*beam.token_ids, token), beam.logprob + logprob
                if token in self._eos:
                    self._ended.append(Beam(tokens, total, "stop"))
                else:
                    grown.append(Beam(tokens, total))
        self.live = self._best(grown)
        self._ended = self._best(self._ended)
        if self.live and len(self.live[0].token_ids) >= self._max_tokens:
            cut = [Beam(beam.token_ids, beam.logprob, "length") for beam in self.live]
            self._ended = self._best([*self._ended, *cut])
            self.live = []
        elif len(self._ended) == width and not self._can_improve():
            self.live = []

    def results(self, tokenizer: Tokenizer | None, *, skip_special: bool) -> list[CompletionOutput]:
        """The best texts, the best first; ask when nothing is live any more."""
        return [
            CompletionOutput(
                index=index,
                text=self._text(beam, tokenizer, skip_special),
                token_ids=list(beam.token_ids),
                cumulative_logprob=beam.logprob,
                finish_reason=beam.finish_reason,
            )
            for index, beam in enumerate(self._ended)
        ]

    def _best(self, beams: list[Beam]) -> list[Beam]:
        """As many as the search is wide, the best first; among equals the earlier."""
        penalty = self._params.length_penalty
        return heapq.nlargest(self._params.beam_width, beams, key=lambda beam: beam.score(penalty))

    def _can_improve(self) -> bool:
        """Whether a live beam could still come to score better than the worst that has ended.

        Its log-probability only falls, and its length ends between the next one and the longest.
        """
        penalty = self._params.length_penalty
        worst = self._ended[-1].score(penalty)
        lengths = (len(self.live[0].token_ids), self._max_tokens) if self.live else ()
        best = (
            beam.logprob / max(length, 1) ** penalty for beam in self.live for length in lengths
        )
        return max(best, default=worst) > worst

    def _text(self, beam: Beam, tokenizer: Tokenizer | None, skip_special: bool) -> str:
        if tokenizer is None:
            return ""
        tokens = list(beam.token_ids)
        if beam.finish_reason == "stop" and not self._params.include_stop_str_in_output:
            tokens.pop()
        return tokenizer.decode(tokens, skip_special)


def step_params(params: BeamSearchParams, max_logprobs: int) -> SamplingParams:
    """What each beam asks the engine for. Raises RequestError for a search that is too wide."""
    wanted = 2 * params.beam_width
    if 0 <= max_logprobs < wanted:
        raise RequestError(
            f"a beam search of {params.beam_width} beams needs the {wanted} likeliest tokens of "
            f"every step, above max_logprobs={max_logprobs}; ask for fewer or raise --max-logprobs",
            "beam_width",
        )
    return SamplingParams(
        max_tokens=1,
        logprobs=wanted,
        temperature=params.temperature,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def end_tokens(config: OctavoConfig, tokenizer: Tokenizer | None) -> frozenset[int]:
    """The tokens that end a text of this model."""
    ids = set(config.model.eos_token_ids)
    if tokenizer is not None and tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    return frozenset(ids)


def _likeliest(output: RequestOutput, count: int) -> list[tuple[int, float]]:
    completion = output.outputs[0]
    if completion.finish_reason == "error" or not completion.logprobs:
        raise GenerationError(output.error or "a beam's request ended without log-probabilities")
    found = completion.logprobs[0].items()
    return [(token, entry.logprob) for token, entry in found if entry.rank <= count]
