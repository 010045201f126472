"""GrammarSequence: one request's text under its grammar, from the first token after reasoning."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from octavo.structured_output.completion import CompletionSearch
from octavo.structured_output.interface import Grammar, GrammarError, MaskArray
from octavo.structured_output.steering import Steering
from octavo.types.sampling_params import ReasoningMarks, SamplingParams

MAX_RUN = 64  # tokens that are forced at once: finding each takes some 50 microseconds
# With these parameters a token that leaves no choice is the same whether it is sampled or written.
# Others count, look back, or want to be told about every token.
_WRITABLE = frozenset(
    {
        "bad_words_token_ids",
        "detokenize",
        "dry_breaker_ids",
        "eos_token_ids",
        "ignore_eos",
        "include_stop_str_in_output",
        "max_tokens",
        "min_p",
        "min_tokens",
        "n",
        "output_kind",
        "prompt_logprobs",
        "seed",
        "skip_reading_prefix_cache",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "stop",
        "stop_scope",
        "stop_token_ids",
        "structured_outputs",
        "temperature",
        "thinking_marks",
        "top_k",
        "top_p",
        "truncate_prompt_tokens",
    }
)


def is_writable(params: SamplingParams) -> bool:
    """Whether tokens that a grammar leaves no choice about need not be sampled."""
    plain = SamplingParams()
    return all(
        getattr(params, name) == getattr(plain, name)
        for name in params.__struct_fields__
        if name not in _WRITABLE
    )


class ReasoningScan:
    """Follows the reasoning that may come before the text a grammar is for."""

    def __init__(
        self, marks: ReasoningMarks, start_ids: Sequence[int], to_bytes: Callable[[int], bytes]
    ) -> None:
        """`start_ids`: tokens that begin reasoning; `to_bytes`: what a token adds to the text."""
        self._to_bytes = to_bytes
        self._ends = [mark.strip().encode() for mark in marks.ends]
        self._longest = max(map(len, self._ends), default=0)
        self._text = b""
        # Until the first token tells, these may come beside what the grammar allows.
        self.start_ids = tuple(start_ids) if marks.inside is None else ()
        self.inside = marks.inside is True

    def feed(self, token_id: int) -> bool:
        """Whether this token belongs to reasoning."""
        if not self.inside:
            self.inside = token_id in self.start_ids
            self.start_ids = ()
            return self.inside
        # What follows the end within its token is dropped: blanks, in any sane vocabulary.
        self._text = (self._text + self._to_bytes(token_id))[-2 * self._longest :]
        self.inside = not any(end in self._text for end in self._ends)
        return True

    @property
    def over(self) -> bool:
        """Whether there is no reasoning any more."""
        return not self.inside and not self.start_ids


class GrammarSequence:
    """Follows a request's output tokens; it can be asked for a mask whenever it has seen them all.

    It keeps only how many tokens it has seen, so preemption and replay change nothing: the tokens
    that a request still has are those it has been shown, or begin with them.
    """

    def __init__(
        self,
        grammar: Grammar,
        params: SamplingParams,
        to_bytes: Callable[[int], bytes],
        *,
        library_ends: Sequence[int],
        start_ids: Sequence[int] = (),
        search: CompletionSearch | None = None,
    ) -> None:
        """`library_ends`: the tokens that the grammar allows exactly where the text may end.

        `start_ids`: tokens that begin reasoning, each by itself. `search`: for requests that are
        to finish within their tokens.
        """
        self.grammar = grammar
        eos = set(params.eos_token_ids or ())
        own = set(params.stop_token_ids or ())
        self._ends = sorted(own if params.ignore_eos else own | eos)
        self._all_ends = sorted({*own, *eos, *library_ends})
        # The library bars and allows EOS tokens by itself; anything else is seen to here.
        self._plain_ends = not own and not params.ignore_eos and eos == set(library_ends)
        self._min_tokens = params.min_tokens
        self._num_seen = 0
        self._steering: Steering | None = None
        if search is not None:
            reserve = 1 if self._ends else 0
            self._steering = Steering(search, grammar.shortest, self._all_ends, reserve)
        self._reasoning: ReasoningScan | None = None
        marks = params.structured_outputs.reasoning if params.structured_outputs else None
        if marks is not None:
            scan = ReasoningScan(marks, start_ids, to_bytes)
            self._reasoning = None if scan.over else scan

    def follow(self, token_ids: Sequence[int], num_prompt_tokens: int) -> None:
        """Take in what is new of all the request's tokens. Raises GrammarError if it can't stand.

        The first `num_prompt_tokens` are the prompt, for which the grammar does not hold.
        """
        new = list(token_ids[num_prompt_tokens + self._num_seen :])
        self._num_seen += len(new)
        for at, token_id in enumerate(new):
            if self._reasoning is None:
                self._accept(new[at:])
                return
            if not self._reasoning.feed(token_id):
                self._accept([token_id])
            if self._reasoning.over:
                self._reasoning = None

    def _accept(self, tokens: list[int]) -> None:
        self.grammar.accept(tokens)
        if self._steering is not None:
            self._steering.follow(tokens)

    def allows(self, token_id: int, left: int) -> bool:
        """Whether a token that was sampled may stand, with `left` tokens to come after it.

        All of the text before it has been followed. False: another one must be sampled, by the mask
        that `adjust` makes next.
        """
        if self._steering is None or self._reasoning is not None or token_id in self._all_ends:
            return True
        try:
            return self._steering.allows(self.grammar, token_id, left)
        except GrammarError:
            return True  # `follow` will say so

    @property
    def num_seen(self) -> int:
        """Output tokens that were followed."""
        return self._num_seen

    @property
    def masks(self) -> bool:
        """Whether the grammar has a say in the next token."""
        return self._reasoning is None or not self._reasoning.inside

    def forced_run(self, most: int) -> list[int]:
        """Up to `most` tokens that come next for certain, each the only one its mask allows."""
        run: list[int] = []
        if self._reasoning is not None:
            return run
        if self._steering is not None and self._steering.closing:
            return self._steering.closing[: min(most, MAX_RUN)]
        grammar = self.grammar
        for _ in range(min(most, MAX_RUN)):
            tokens = grammar.forced()
            if not tokens or tokens[0] in self._all_ends:
                break
            if not run:
                grammar = grammar.copy()
            run.append(tokens[0])
            grammar.accept(tokens[:1])
        return run

    def adjust(self, row: MaskArray, left: int) -> bool:
        """Finish row[W], which the grammar has filled; False: the text is complete, end it here.

        `left`: tokens that may still come. Tokens that end the request may come exactly where the
        text may end and has its min_tokens; where nothing but an end is possible and no token may
        say so, it is over.
        """
        if self._reasoning is not None:
            _set(row, self._reasoning.start_ids, True)
        early = self._num_seen < self._min_tokens
        if self._steering is not None and self._reasoning is None:
            only = self._steering.only(self.grammar, left)
            if only is not None and (only or not early):
                row[:] = 0
                _set(row, only or self._ends, True)
                return bool(only or self._ends)
        if self._plain_ends and not early:
            return True
        may_end = self.grammar.may_end
        _set(row, self._all_ends, False)
        if may_end and not early:
            _set(row, self._ends, True)
        return bool(row.any()) or not may_end


def _set(row: MaskArray, token_ids: Sequence[int], allowed: bool) -> None:
    words = row.view("uint32")
    for token_id in token_ids:
        bit = 1 << (token_id % 32)
        word = int(words[token_id // 32])
        words[token_id // 32] = word | bit if allowed else word & ~bit
