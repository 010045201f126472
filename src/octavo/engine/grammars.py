"""CoreGrammars: requests that wait for their grammars, and the masks of those that run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from octavo.config.octavo_config import OctavoConfig
from octavo.engine.model_tokenizer import model_tokenizer
from octavo.structured_output.completion import CompletionSearch
from octavo.structured_output.interface import (
    BACKENDS,
    Grammar,
    GrammarBackend,
    GrammarError,
    Vocabulary,
    mask_width,
)
from octavo.structured_output.manager import GrammarManager
from octavo.structured_output.sequence import GrammarSequence, is_writable
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.engine_output import FinishReason
from octavo.types.request import EngineCoreRequest
from octavo.types.sampling_params import SamplingParams, StructuredOutputsParams
from octavo.types.scheduler_output import GrammarMasks, SchedulerOutput

_EVERY_TOKEN = -1  # a word of a mask


class RunningRequest(Protocol):
    """What masks are made from: a request of the scheduler."""

    request_id: str
    token_ids: list[int]
    num_prompt_tokens: int
    max_length: int  # tokens
    sampling_params: SamplingParams
    finish_reason: FinishReason | None


class Ended(NamedTuple):
    """A request that ends before its row is sampled."""

    request_id: str
    reason: FinishReason
    error: str | None
    param: str | None = None  # the field of the request at fault


class CoreGrammars:
    """Requests with a grammar go to the scheduler once it is compiled; others pass them meanwhile.

    They wait here and not in the scheduler's queue, so however many wait, and however long, no
    request behind them is held up.
    """

    def __init__(self, config: OctavoConfig, max_model_len: int) -> None:
        self._config = config
        self._max_model_len = max_model_len
        self._on_ready: Callable[[], None] = lambda: None
        self._tokenizer: Tokenizer | None = None
        self._search: CompletionSearch | None = None
        self._library_ends: tuple[int, ...] = ()
        options = config.structured_outputs
        self._manager = GrammarManager(
            self._make_backend,
            budget=options.grammar_compile_timeout,
            on_ready=lambda: self._on_ready(),
            on_compiled=self._note_shortest,
        )
        self._width = mask_width(config.model.vocab_size)
        self._held: dict[str, EngineCoreRequest] = {}
        self._sequences: dict[str, GrammarSequence] = {}
        self._jumps = options.jump_forward and not config.model.logits_processors
        self._writable: set[str] = set()  # requests whose forced tokens need no sampling

    @property
    def num_held(self) -> int:
        """Requests whose grammars are not ready."""
        return len(self._held)

    @property
    def num_running(self) -> int:
        """Requests with a grammar that the scheduler has."""
        return len(self._sequences)

    @property
    def has_news(self) -> bool:
        """Whether `take` would give something."""
        return bool(self._held) and self._manager.has_news

    def wake_by(self, on_ready: Callable[[], None]) -> None:
        """Have `on_ready` called, in another thread, when there is news."""
        self._on_ready = on_ready

    def prepare(self) -> None:
        """Read the vocabulary in the background: it takes a second that no request should pay."""
        model = self._config.model
        if not model.skip_tokenizer_init and model.pooler is None:
            self._manager.prepare()

    def wait(self) -> None:
        """Sleep until there is news, or a short while."""
        if self._held:
            self._manager.wait()

    def hold(self, request: EngineCoreRequest) -> None:
        """Keep a request until its grammar is ready; `take` gives it."""
        spec = request.sampling_params.structured_outputs
        assert spec is not None, "a request without a grammar is not held"
        self._held[request.request_id] = request
        self._manager.start(request.request_id, spec)

    def take(self) -> list[tuple[EngineCoreRequest, GrammarError | None]]:
        """Requests that may run now, and those that can't, with the reason."""
        found: list[tuple[EngineCoreRequest, GrammarError | None]] = []
        for request_id, result in self._manager.take():
            request = self._held.pop(request_id, None)
            if request is None:
                continue
            error = result if isinstance(result, GrammarError) else self._too_long(request, result)
            if error is not None or isinstance(result, GrammarError):
                found.append((request, error))
                continue
            params = request.sampling_params
            self._sequences[request_id] = GrammarSequence(
                result,
                params,
                self._token_bytes,
                library_ends=self._library_ends,
                start_ids=self._start_ids(request),
                search=self._search if _finishes(request) else None,
            )
            if self._jumps and is_writable(params):
                self._writable.add(request_id)
            found.append((request, None))
        return found

    def forget(self, request_ids: Iterable[str]) -> None:
        """Requests have ended, wherever they were; unknown ids are ignored."""
        for request_id in request_ids:
            if self._held.pop(request_id, None) is not None:
                self._manager.cancel(request_id)
            self._sequences.pop(request_id, None)
            self._writable.discard(request_id)

    def masks(
        self, step: SchedulerOutput, requests: Sequence[RunningRequest | None]
    ) -> tuple[GrammarMasks, list[Ended]]:
        """The masks of a step whose rows' earlier tokens are known, and requests that end now.

        `requests` are the step's, row by row. What goes wrong with one request ends that one.
        """
        rows: list[int] = []
        bound: list[tuple[str, GrammarSequence]] = []
        lefts: list[int] = []  # tokens that may still come
        ended: list[Ended] = []
        for row in step.grammar_rows:
            request = requests[row]
            if request is None or request.finish_reason is not None:
                continue
            name = request.request_id
            sequence = self._sequences[name]
            try:
                sequence.follow(request.token_ids, request.num_prompt_tokens)
            except GrammarError as error:
                ended.append(Ended(name, FinishReason.ERROR, str(error)))
                continue
            if sequence.masks:
                rows.append(row)
                bound.append((name, sequence))
                lefts.append(request.max_length - len(request.token_ids))
        masks = np.full((len(rows), self._width), _EVERY_TOKEN, dtype=np.int32)
        if bound:
            grammars = [(sequence.grammar, index) for index, (_, sequence) in enumerate(bound)]
            self._manager.fill(grammars, masks)
        for index, (name, sequence) in enumerate(bound):
            error_text = sequence.grammar.error
            if error_text is not None:
                text = (
                    f"structured_outputs: after {sequence.num_seen} tokens the grammar takes more "
                    f"work than a token may cost ({error_text}); write it with fewer ways to read "
                    "the same text, or bound what repeats"
                )
                ended.append(Ended(name, FinishReason.ERROR, text, "structured_outputs"))
            elif sequence.adjust(masks[index], lefts[index]):
                continue
            else:
                ended.append(Ended(name, FinishReason.STOP, None))
            masks[index] = _EVERY_TOKEN
        return GrammarMasks(step.step_id, rows, masks), ended

    def misled(
        self,
        step: SchedulerOutput,
        requests: Sequence[RunningRequest | None],
        sampled: Sequence[Sequence[int]],
    ) -> list[int]:
        """Rows whose sampled token must be dropped and sampled again, by the next mask.

        They are of requests that are to finish within their tokens. `sampled` are the tokens of
        the step's rows, which no request has yet.
        """
        rows: list[int] = []
        for row in step.grammar_rows:
            request, tokens = requests[row], sampled[row]
            if request is None or request.finish_reason is not None or len(tokens) != 1:
                continue
            sequence = self._sequences.get(request.request_id)
            left = request.max_length - len(request.token_ids) - 1
            if sequence is not None and not sequence.allows(tokens[0], left):
                rows.append(row)
        return rows

    def forced_runs(
        self, masks: GrammarMasks, requests: Sequence[RunningRequest | None]
    ) -> list[tuple[int, list[int]]]:
        """(row, tokens) of rows just masked where more than the next token is certain.

        The first token is the one that the row will sample.
        """
        runs: list[tuple[int, list[int]]] = []
        for row in masks.rows:
            request = requests[row]
            if request is None or request.request_id not in self._writable:
                continue
            sequence = self._sequences[request.request_id]
            run = sequence.forced_run(request.max_length - len(request.token_ids))
            if len(run) > 1:
                runs.append((row, run))
        return runs

    def _make_backend(self) -> GrammarBackend:
        config = self._config
        tokenizer = model_tokenizer(config)
        if tokenizer is None:
            raise GrammarError("structured output needs a tokenizer; this engine runs without one")
        self._tokenizer = tokenizer
        # As the front end tells requests what ends them.
        eos = set(config.model.eos_token_ids)
        if tokenizer.eos_token_id is not None:
            eos.add(tokenizer.eos_token_id)
        vocabulary = Vocabulary(tokenizer, config.model.vocab_size, tuple(sorted(eos)))
        self._library_ends = vocabulary.ends
        backend = BACKENDS.get(config.structured_outputs.backend)(vocabulary)
        self._search = CompletionSearch(vocabulary, backend.fill)
        return backend

    def _note_shortest(self, spec: StructuredOutputsParams, grammar: Grammar) -> None:
        """In the compiler's thread: find out how short an answer can be, where that matters."""
        if spec.finish_within_limit and self._search is not None:
            found = self._search.find(grammar, self._max_model_len)
            grammar.shortest = None if found is None else tuple(found)

    def _too_long(self, request: EngineCoreRequest, grammar: Grammar) -> GrammarError | None:
        """Why the shortest answer that is known can't be given within the request's tokens."""
        spec = request.sampling_params.structured_outputs
        if not _finishes(request) or (spec is not None and spec.reasoning is not None):
            return None
        room = min(request.max_tokens, self._max_model_len - request.num_prompt_tokens)
        if grammar.shortest is None:
            return GrammarError(
                "structured_outputs.finish_within_limit: no short answer was found, so it can't be "
                "promised that one ends in time; leave it out, or make the grammar simpler",
                "structured_outputs.finish_within_limit",
            )
        need = len(grammar.shortest) + (not request.sampling_params.ignore_eos)
        if need <= room:
            return None
        return GrammarError(
            f"structured_outputs.finish_within_limit: the shortest answer found has {need} tokens, "
            f"its end included, and max_tokens and the model leave {room}; raise max_tokens",
            "max_tokens",
        )

    def _token_bytes(self, token_id: int) -> bytes:
        return b"" if self._tokenizer is None else self._tokenizer.token_bytes(token_id)

    def _start_ids(self, request: EngineCoreRequest) -> list[int]:
        """Tokens that begin reasoning, each by itself."""
        spec = request.sampling_params.structured_outputs
        marks = spec.reasoning if spec is not None else None
        if marks is None or self._tokenizer is None:
            return []
        ids = self._tokenizer.convert_tokens_to_ids([mark.strip() for mark in marks.starts])
        return [token_id for token_id in ids if token_id is not None]


def _finishes(request: EngineCoreRequest) -> bool:
    """Whether the request is to finish within its tokens."""
    spec = request.sampling_params.structured_outputs
    return spec is not None and bool(spec.finish_within_limit)
