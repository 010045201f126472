"""SamplingParams: how the tokens of one request are chosen, and when it stops."""

from __future__ import annotations

import difflib
import enum
from typing import Any

import msgspec

from octavo.types.checks import check_ids, check_range, check_strings
from octavo.types.errors import RequestError
from octavo.types.sampling_extras import (
    HiddenStatesParams,
    RepetitionDetectionParams,
    ThinkingMarks,
)

MAX_N = 16384
MAX_STOP_STRINGS = 64
MAX_STOP_LENGTH = 1024  # characters of one stop string
MAX_STOP_TOKEN_IDS = 1024
MAX_LOGIT_BIAS = 4096
MAX_ALLOWED_TOKEN_IDS = 1 << 20
MAX_BAD_WORDS = 1024
MAX_BAD_WORD_LENGTH = 1024  # characters of one bad word
MAX_BAD_WORDS_TEXT = 1 << 15  # characters of all of them: they are tokenized at admission
MAX_REPETITION = 1e6  # of repetition_penalty, and 1 / it: beyond, float32 logits overflow
MIN_TEMPERATURE = 1e-2  # smaller positive values are raised to this
GREEDY_EPS = 1e-5  # below it, greedy
MAX_SEED = (1 << 63) - 1
MAX_CHOICES = 10_000
MAX_GRAMMAR_SIZE = 1 << 20  # characters of a schema, grammar, expression or list of choices
STRUCTURE_KINDS = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")
MAX_DRY_BREAKERS = 64
MAX_DRY_BREAKER_LENGTH = 128  # characters
DRY_BREAKERS = ("\n", ":", '"', "*")  # where a request names none
_JSON_SWITCHES = ("disable_any_whitespace", "disable_additional_properties")


class RequestOutputKind(enum.IntEnum):
    """What each RequestOutput of a stream holds."""

    CUMULATIVE = 0  # everything so far
    DELTA = 1  # what is new since the last output
    FINAL_ONLY = 2  # one output at the end


class ReasoningMarks(msgspec.Struct, array_like=True, omit_defaults=True):
    """Where reasoning may stand before the text that a grammar is for.

    `inside`: the answer begins within it; True or False, or None: the answer itself tells, by
    beginning with one of `starts`.
    """

    starts: list[str] = []
    ends: list[str] = []
    inside: bool | None = None


class StructuredOutputsParams(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One constraint on the shape of the text; exactly one of the kinds is set.

    A schema or tag given as an object is kept as JSON text, in which numbers are of any size.
    Raises RequestError naming the field.
    """

    json: str | dict[str, Any] | bool | None = None  # a JSON schema
    json_object: bool | None = None  # any JSON object
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None  # EBNF ("root ::= ...") or Lark ("start: ...")
    structural_tag: str | dict[str, Any] | None = None
    whitespace_pattern: str | None = None  # what may stand between the tokens of JSON
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None
    # Lead the text to a valid end before max_tokens or the model's length cuts it.
    finish_within_limit: bool | None = None
    # Filled by the chat API: the grammar is for what comes after reasoning.
    reasoning: ReasoningMarks | None = None

    def __post_init__(self) -> None:
        if self.json_object is False:
            self.json_object = None
        kinds = [kind for kind in STRUCTURE_KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            found = f"has {' and '.join(kinds)}" if kinds else "says nothing"
            raise RequestError(
                f"structured_outputs {found}; set exactly one of {', '.join(STRUCTURE_KINDS)}",
                "structured_outputs",
            )
        self.json = _as_text("json", self.json)
        self.structural_tag = _as_text("structural_tag", self.structural_tag)
        self._check_size(kinds[0])
        if kinds[0] not in ("json", "json_object", "structural_tag"):
            for name in ("whitespace_pattern", *_JSON_SWITCHES):
                if getattr(self, name):
                    raise RequestError(
                        f"structured_outputs.{name} is for JSON, not for {kinds[0]}; leave it out",
                        f"structured_outputs.{name}",
                    )
        if self.disable_any_whitespace and self.whitespace_pattern is not None:
            raise RequestError(
                "structured_outputs has whitespace_pattern and disable_any_whitespace; set one",
                "structured_outputs.whitespace_pattern",
            )

    @property
    def kind(self) -> str:
        """The kind that is set."""
        return next(kind for kind in STRUCTURE_KINDS if getattr(self, kind) is not None)

    def _check_size(self, kind: str) -> None:
        where = f"structured_outputs.{kind}"
        if self.choice is not None:
            if not self.choice or len(self.choice) > MAX_CHOICES:
                raise RequestError(
                    f"{where} has {len(self.choice)} entries; 1 to {MAX_CHOICES} are possible",
                    where,
                )
            if "" in self.choice:
                raise RequestError(f"{where} holds an empty string", where)
        texts = self.choice or [getattr(self, kind)]
        size = sum(len(text) for text in (*texts, self.whitespace_pattern) if isinstance(text, str))
        if size > MAX_GRAMMAR_SIZE:
            raise RequestError(f"{where} has {size} characters; at most {MAX_GRAMMAR_SIZE}", where)


class StopScope(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Parts of the text in which stop strings do not count, told by pairs of texts around them.

    A pair of `at_start` counts where the text begins, after blanks; with `inside` the text begins
    within one. A pair of `anywhere` counts everywhere; without a second text it goes on to the end.
    """

    inside: bool = False
    at_start: list[tuple[str, str]] = []
    anywhere: list[tuple[str, str]] = []


class _NamedFields(msgspec.StructMeta):
    """Has a misspelled keyword told with the field it comes closest to."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except TypeError as error:
            unknown = next((name for name in kwargs if name not in cls.__struct_fields__), None)
            if unknown is None:
                raise
            close = difflib.get_close_matches(unknown, cls.__struct_fields__, n=1)
            guess = f"; did you mean {close[0]}?" if close else ""
            message = f"{cls.__name__} has no field {unknown!r}{guess}"
            raise RequestError(message, unknown) from error


class SamplingParams(msgspec.Struct, metaclass=_NamedFields, kw_only=True, omit_defaults=True):
    """Parameters of text generation; names and defaults are vLLM's.

    Raises RequestError naming the field, the value and the allowed range.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0 or -1: off
    min_p: float = 0.0
    typical_p: float = 1.0  # 1: off
    top_n_sigma: float = 0.0  # 0 or less: off
    xtc_probability: float = 0.0  # 0: off
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0  # 0: off
    dynatemp_exponent: float = 1.0
    mirostat_mode: int = 0  # 0: off; 1 or 2: the version
    mirostat_tau: float = 5.0  # the surprise aimed at, in bits per token
    mirostat_eta: float = 0.1  # how fast it is approached
    dry_multiplier: float = 0.0  # 0: off
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1  # how many tokens DRY looks back; -1: all
    dry_sequence_breakers: list[str] | None = None  # None: DRY_BREAKERS
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16  # None: up to the model's length limit
    min_tokens: int = 0
    logprobs: int | None = None  # -1: the whole vocabulary
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    truncate_prompt_tokens: int | None = None  # keep the last k; -1: the model's length limit
    structured_outputs: StructuredOutputsParams | None = None
    thinking_token_budget: int | None = None  # tokens per thought; the end is then written
    repetition_detection: RepetitionDetectionParams | None = None
    hidden_states: HiddenStatesParams | None = None
    skip_reading_prefix_cache: bool | None = None
    extra_args: dict[str, Any] | None = None  # for LogitsProcessor plug-ins
    # Filled by the input processor, not by users.
    bad_words_token_ids: list[list[int]] | None = None
    eos_token_ids: list[int] | None = None
    dry_breaker_ids: list[int] | None = None
    # Filled by the entry points, which know the model's marks of thinking.
    thinking_marks: ThinkingMarks | None = None
    # Filled by the chat API: stop strings end what the user is meant to read, not reasoning.
    stop_scope: StopScope | None = None

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_shaping()
        self._check_lists()
        if self.stop is None:
            self.stop = []
        elif isinstance(self.stop, str):
            self.stop = [self.stop]
        if self.seed == -1:
            self.seed = None
        if self.top_k == -1:
            self.top_k = 0
        if self.dry_penalty_last_n == 0:
            self.dry_multiplier = 0.0
        if 0 < self.temperature < GREEDY_EPS:
            self.temperature = 0.0
        elif GREEDY_EPS <= self.temperature < MIN_TEMPERATURE:
            self.temperature = MIN_TEMPERATURE

    @property
    def greedy(self) -> bool:
        """Whether every token is the argmax."""
        return self.temperature < GREEDY_EPS

    @property
    def stop_strings(self) -> list[str]:
        """The stop strings as a list."""
        return self.stop if isinstance(self.stop, list) else []

    def _check_numbers(self) -> None:
        check = check_range
        check("n", self.n, 1, MAX_N)
        check("presence_penalty", self.presence_penalty, -2.0, 2.0)
        check("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        check("repetition_penalty", self.repetition_penalty, 1 / MAX_REPETITION, MAX_REPETITION)
        check("temperature", self.temperature, 0.0, 2.0)
        check("top_p", self.top_p, 0.0, 1.0, low_open=True)
        check("top_k", self.top_k, -1, 1 << 31)
        check("min_p", self.min_p, 0.0, 1.0)
        check("min_tokens", self.min_tokens, 0, 1 << 31)
        if self.seed is not None:
            check("seed", self.seed, -(1 << 63), MAX_SEED)
        if self.max_tokens is not None:
            check("max_tokens", self.max_tokens, 0, 1 << 31)
            if self.min_tokens > self.max_tokens:
                raise RequestError(
                    f"min_tokens={self.min_tokens} is above max_tokens={self.max_tokens}; "
                    "lower min_tokens or raise max_tokens",
                    "min_tokens",
                )
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None:
                check(name, value, -1, 1 << 31)
        if self.truncate_prompt_tokens is not None:
            check("truncate_prompt_tokens", self.truncate_prompt_tokens, -1, 1 << 31)
            if self.truncate_prompt_tokens == 0:
                raise RequestError(
                    "truncate_prompt_tokens=0 would leave no prompt; use -1 or a positive number",
                    "truncate_prompt_tokens",
                )

    def _check_shaping(self) -> None:
        """Parameters of the stages beyond top-k, top-p and min-p."""
        check = check_range
        check("typical_p", self.typical_p, 0.0, 1.0, low_open=True)
        check("top_n_sigma", self.top_n_sigma, -1.0, 1e3)
        check("xtc_probability", self.xtc_probability, 0.0, 1.0)
        check("xtc_threshold", self.xtc_threshold, 0.0, 1.0)
        check("dynatemp_range", self.dynatemp_range, 0.0, 2.0)
        check("dynatemp_exponent", self.dynatemp_exponent, 0.0, 100.0, low_open=True)
        check("mirostat_mode", self.mirostat_mode, 0, 2)
        check("mirostat_tau", self.mirostat_tau, 0.0, 100.0, low_open=True)
        check("mirostat_eta", self.mirostat_eta, 0.0, 1.0)
        check("dry_multiplier", self.dry_multiplier, 0.0, 1e3)
        check("dry_base", self.dry_base, 1.0, 1e3)
        check("dry_allowed_length", self.dry_allowed_length, 0, 1 << 30)
        check("dry_penalty_last_n", self.dry_penalty_last_n, -1, 1 << 30)
        if self.thinking_token_budget is not None:
            check("thinking_token_budget", self.thinking_token_budget, 0, 1 << 30)

    def _check_lists(self) -> None:
        breakers = self.dry_sequence_breakers or []
        check_strings("dry_sequence_breakers", breakers, MAX_DRY_BREAKERS, MAX_DRY_BREAKER_LENGTH)
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        check_strings("stop", stops, MAX_STOP_STRINGS, MAX_STOP_LENGTH)
        if stops and not self.detokenize:
            raise RequestError(
                "stop strings need detokenize=true (the engine looks for them in the text); "
                "set detokenize or use stop_token_ids",
                "stop",
            )
        if self.stop_scope is not None:
            pairs = [*self.stop_scope.at_start, *self.stop_scope.anywhere]
            marks = [mark for begin, end in pairs for mark in (begin, *([end] if end else []))]
            check_strings("stop_scope", marks, 2 * MAX_STOP_STRINGS, MAX_STOP_LENGTH)
        check_strings("bad_words", self.bad_words or [], MAX_BAD_WORDS, MAX_BAD_WORD_LENGTH)
        length = sum(map(len, self.bad_words or ()))
        if length > MAX_BAD_WORDS_TEXT:
            raise RequestError(
                f"bad_words have {length} characters together; at most {MAX_BAD_WORDS_TEXT}",
                "bad_words",
            )
        check_ids("stop_token_ids", self.stop_token_ids, MAX_STOP_TOKEN_IDS)
        check_ids("allowed_token_ids", self.allowed_token_ids, MAX_ALLOWED_TOKEN_IDS)
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise RequestError(
                "allowed_token_ids=[] allows no token; list at least one id or leave it out",
                "allowed_token_ids",
            )
        if self.logit_bias:
            if len(self.logit_bias) > MAX_LOGIT_BIAS:
                raise RequestError(
                    f"logit_bias has {len(self.logit_bias)} entries; at most {MAX_LOGIT_BIAS}",
                    "logit_bias",
                )
            for token, bias in self.logit_bias.items():
                if not isinstance(token, int) or isinstance(token, bool) or token < 0:
                    raise RequestError(
                        f"logit_bias has the key {token!r}; keys are token ids >= 0", "logit_bias"
                    )
                check_range(f"logit_bias[{token}]", bias, -100.0, 100.0, param="logit_bias")


def _as_text(kind: str, value: Any) -> str | None:
    """JSON as text; what is text already stays as it is."""
    if value is None or isinstance(value, str):
        return value
    where = f"structured_outputs.{kind}"
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise RequestError(f"{where} can't be written as JSON: {error}", where) from None
