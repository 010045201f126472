"""InputProcessor: prompt and SamplingParams -> EngineCoreRequest, every number and list checked."""

from __future__ import annotations

import itertools
import random
import re
import time
from dataclasses import dataclass, field

import msgspec

from octavo.config.octavo_config import OctavoConfig
from octavo.config.structured_outputs import StructuredOutputsConfig
from octavo.engine.dry_breakers import DryBreakers
from octavo.engine.model_checks import check_hidden_states, check_thinking
from octavo.engine.prompts import ParsedPrompt, check_text
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.errors import RequestError
from octavo.types.request import EngineCoreRequest, LoRARequest
from octavo.types.sampling_params import MAX_SEED, SamplingParams, StructuredOutputsParams

# No natural text has so many characters per token on average; a text beyond it is refused
# before it is tokenized, because tokenizing costs time in proportion to its length.
MAX_CHARS_PER_TOKEN = 64
LONG_TEXT = 8192  # characters from which tokenizing takes more than a few milliseconds
MAX_PRIORITY = 1 << 31
MAX_EXTRA_ARGS_BYTES = 1 << 20
_FIELD = re.compile(r"\$\.(\w+)")


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """What requests are checked against."""

    vocab_size: int  # of the model: token ids below it are accepted, also those without a token
    max_model_len: int  # prompt + output, in tokens
    max_logprobs: int  # -1: no limit
    eos_token_ids: tuple[int, ...]
    takes_priority: bool
    clamp_max_tokens: bool  # lower a max_tokens that does not fit, instead of refusing it
    structured_outputs: StructuredOutputsConfig = field(default_factory=StructuredOutputsConfig)
    pools: bool = False  # the model generates no text
    num_layers: int = 0

    @classmethod
    def of(cls, config: OctavoConfig, *, clamp_max_tokens: bool) -> RequestLimits:
        """The limits of a running engine."""
        return cls(
            vocab_size=config.model.vocab_size,
            max_model_len=config.model.max_model_len,
            max_logprobs=config.model.max_logprobs,
            eos_token_ids=config.model.eos_token_ids,
            takes_priority=config.scheduler.scheduling_policy == "priority",
            clamp_max_tokens=clamp_max_tokens,
            structured_outputs=config.structured_outputs,
            pools=config.model.pooler is not None,
            num_layers=config.model.arch.num_layers,
        )


class InputProcessor:
    """Admits requests. Raises RequestError with the field at fault; admits nothing half.

    A request without a seed gets one from `seed`, so that equal runs draw equal noise.
    `client_index` keeps the ids and the seeds of several front ends of one core apart.
    """

    def __init__(
        self,
        limits: RequestLimits,
        tokenizer: Tokenizer | None,
        seed: int,
        *,
        client_index: int = 0,
    ) -> None:
        self._limits = limits
        self._tokenizer = tokenizer
        self._seeds = random.Random(f"{seed}:{client_index}" if client_index else seed)
        self._id_prefix = f"{client_index}." if client_index else ""
        self._numbers = itertools.count()
        eos = set(limits.eos_token_ids)
        if tokenizer is not None and tokenizer.eos_token_id is not None:
            eos.add(tokenizer.eos_token_id)
        self._dry_breakers = DryBreakers(tokenizer, limits.vocab_size)
        self._eos_token_ids = sorted(token for token in eos if token < limits.vocab_size)

    def tokenize(self, prompt: ParsedPrompt) -> list[int]:
        """The token ids of a prompt. Slow for a text beyond LONG_TEXT; safe in another thread."""
        if prompt.token_ids is not None:
            return prompt.token_ids
        text = prompt.text or ""
        if self._tokenizer is None:
            raise RequestError(
                "this engine has no tokenizer (--skip-tokenizer-init); send prompt_token_ids",
                "prompt",
            )
        limit = MAX_CHARS_PER_TOKEN * self._limits.max_model_len
        if len(text) > limit:
            raise RequestError(
                f"the prompt has {len(text)} characters; at most {limit} are tokenized for a "
                f"model of max_model_len={self._limits.max_model_len}",
                "prompt",
            )
        return self._tokenizer.encode(text)

    def make_request(
        self,
        request_id: str,
        prompt: ParsedPrompt,
        token_ids: list[int],
        params: SamplingParams,
        *,
        arrival_time: float | None = None,
        priority: int = 0,
        lora_request: LoRARequest | None = None,
        trace_headers: dict[str, str] | None = None,
    ) -> EngineCoreRequest:
        """The request as the core runs it, under an id of its own; `params` is not changed."""
        if self._limits.pools:
            raise RequestError(
                "this model makes embeddings or scores and generates no text; ask for those, or "
                "start the engine with --runner generate if it is made for text"
            )
        if lora_request is not None:
            raise RequestError("LoRA adapters are not supported yet", "lora_request")
        self._check_priority(priority)
        _check_trace_headers(trace_headers)
        params = self._check_params(params)
        self._check_token_ids(token_ids, "prompt")
        token_ids = self._truncate(token_ids, params)
        max_tokens = self._resolve_max_tokens(len(token_ids), params)
        seed = self._seeds.getrandbits(63) if params.seed is None else params.seed & MAX_SEED
        return EngineCoreRequest(
            request_id=f"{self._id_prefix}{next(self._numbers)}:{request_id}",
            token_ids=token_ids,
            num_prompt_tokens=len(token_ids),
            sampling_params=params,
            seed=seed,
            arrival_time=time.time() if arrival_time is None else arrival_time,
            max_tokens=max_tokens,
            priority=priority,
            cache_salt=prompt.cache_salt,
            trace_headers=trace_headers,
        )

    def _check_params(self, params: SamplingParams) -> SamplingParams:
        """A checked copy with what only the engine knows filled in."""
        params = _checked_types(params)
        if params.structured_outputs is not None:
            params.structured_outputs = self.structure(params.structured_outputs)
        params.eos_token_ids = self._eos_token_ids
        params.bad_words_token_ids = self._tokenize_bad_words(params.bad_words or []) or None
        for text in params.stop_strings:
            check_text(text, "stop")
        if params.stop_strings and self._tokenizer is None:
            raise RequestError("stop strings need a tokenizer; use stop_token_ids", "stop")
        self._check_logprobs("logprobs", params.logprobs)
        self._check_logprobs("prompt_logprobs", params.prompt_logprobs)
        self._check_token_ids(params.stop_token_ids or [], "stop_token_ids")
        self._check_token_ids(params.allowed_token_ids or [], "allowed_token_ids")
        self._check_token_ids(list(params.logit_bias or ()), "logit_bias")
        self._check_choice(params)
        if params.dry_multiplier:
            params.dry_breaker_ids = self._dry_breakers.token_ids(params.dry_sequence_breakers)
        if params.thinking_token_budget is not None:
            held = self._limits.structured_outputs.enable_in_reasoning
            check_thinking(params, grammar_holds_thinking=held)
        if params.hidden_states is not None:
            check_hidden_states(params.hidden_states, self._limits.num_layers)
        _check_extra_args(params)
        return params

    def structure(self, spec: StructuredOutputsParams) -> StructuredOutputsParams:
        """The constraint with the server's defaults filled in."""
        if self._tokenizer is None:
            raise RequestError("structured_outputs needs a tokenizer", "structured_outputs")
        options = self._limits.structured_outputs
        changes: dict[str, bool | None] = {}
        if spec.finish_within_limit is None:
            changes["finish_within_limit"] = options.finish_within_limit or None
        if spec.kind in ("json", "json_object", "structural_tag"):
            blanks = spec.disable_any_whitespace
            if blanks is None and spec.whitespace_pattern is None:
                changes["disable_any_whitespace"] = options.disable_any_whitespace or None
            if spec.disable_additional_properties is None:
                closed = options.disable_additional_properties
                changes["disable_additional_properties"] = closed or None
        if options.enable_in_reasoning:
            changes["reasoning"] = None
        return msgspec.structs.replace(spec, **changes)

    def _check_choice(self, params: SamplingParams) -> None:
        """Refuse parameters that bar every token; what they bar later on can't be foreseen."""
        barred = {word[0] for word in params.bad_words_token_ids or () if len(word) == 1}
        if params.min_tokens:
            barred.update(params.stop_token_ids or ())
            if not params.ignore_eos:
                barred.update(self._eos_token_ids)
        allowed = params.allowed_token_ids
        if allowed is None and len(barred) < self._limits.vocab_size:
            return
        if allowed is None or all(token in barred for token in allowed):
            name = "min_tokens" if allowed is None else "allowed_token_ids"
            raise RequestError(
                f"{name} leaves no token to choose: all of them are bad_words, or end the text "
                "before min_tokens",
                name,
            )

    def _check_logprobs(self, name: str, value: int | None) -> None:
        limit = self._limits.max_logprobs
        if value is None or limit == -1:
            return
        wanted = self._limits.vocab_size if value == -1 else value
        if wanted > limit:
            raise RequestError(
                f"{name}={value} is above the server's max_logprobs={limit}; ask for fewer or "
                "raise --max-logprobs",
                name,
            )

    def _check_token_ids(self, ids: list[int], param: str) -> None:
        size = self._limits.vocab_size
        if ids and not (min(ids) >= 0 and max(ids) < size):
            bad = next(token for token in ids if not 0 <= token < size)
            raise RequestError(f"{param} holds the token id {bad}, outside [0, {size})", param)

    def _check_priority(self, priority: int) -> None:
        if type(priority) is not int or abs(priority) > MAX_PRIORITY:
            raise RequestError(
                f"priority={priority!r} is not an integer within +-{MAX_PRIORITY}", "priority"
            )
        if priority and not self._limits.takes_priority:
            raise RequestError(
                f"priority={priority} needs --scheduling-policy priority; leave it at 0",
                "priority",
            )

    def _tokenize_bad_words(self, words: list[str]) -> list[list[int]]:
        """Every word at the start of a text and after a blank, which tokenizers spell apart."""
        if words and self._tokenizer is None:
            raise RequestError("bad_words need a tokenizer; use logit_bias", "bad_words")
        found: list[list[int]] = []
        for word in words:
            bare = check_text(word, "bad_words").lstrip(" ")
            for spelling in (bare, " " + bare):
                ids = self._tokenizer.encode(spelling, False) if self._tokenizer and bare else []
                if ids and ids not in found:
                    found.append(ids)
        return found

    def _truncate(self, token_ids: list[int], params: SamplingParams) -> list[int]:
        keep = params.truncate_prompt_tokens
        if keep is None:
            return token_ids
        limit = self._limits.max_model_len
        if keep > limit:
            raise RequestError(
                f"truncate_prompt_tokens={keep} is above max_model_len={limit}",
                "truncate_prompt_tokens",
            )
        if keep == -1:
            room = 1 if params.max_tokens is None else params.max_tokens
            keep = max(1, limit - room)
        return token_ids[-keep:]

    def _resolve_max_tokens(self, num_prompt: int, params: SamplingParams) -> int:
        limit = self._limits.max_model_len
        asked = params.max_tokens
        if num_prompt == 0:
            raise RequestError("the prompt is empty: it has no tokens", "prompt")
        longest = limit if asked == 0 else limit - 1
        if num_prompt > longest:
            raise RequestError(
                f"the prompt has {num_prompt} tokens; at most {longest} fit (max_model_len={limit}"
                "); shorten it or set truncate_prompt_tokens",
                "prompt",
            )
        room = limit - num_prompt
        max_tokens = room if asked is None else asked
        if max_tokens > room:
            if not self._limits.clamp_max_tokens:
                raise RequestError(
                    f"max_tokens={max_tokens} and a prompt of {num_prompt} tokens are above "
                    f"max_model_len={limit}; set max_tokens to {room} or less",
                    "max_tokens",
                )
            max_tokens = room
        if params.min_tokens > max_tokens:
            raise RequestError(
                f"min_tokens={params.min_tokens} is above the {max_tokens} tokens that fit",
                "min_tokens",
            )
        return max_tokens


def _checked_types(params: SamplingParams) -> SamplingParams:
    """A copy whose fields have the types they should, ranges checked again.

    The fields may have been set since construction, and the core drops what it can't decode.
    """
    values = {name: getattr(params, name) for name in SamplingParams.__struct_fields__}
    try:
        return msgspec.convert(values, SamplingParams)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, RequestError):
            raise error.__cause__ from None
        what, _, where = str(error).partition(" - at ")
        found = _FIELD.search(where)
        name = found[1] if found else None
        raise RequestError(f"{name}: {what[:1].lower()}{what[1:]}", name) from None


def _check_trace_headers(headers: dict[str, str] | None) -> None:
    if headers is None:
        return
    kinds = {type(text) for pair in headers.items() for text in pair}
    if kinds - {str}:
        raise RequestError("trace_headers holds something that is no string", "trace_headers")


def _check_extra_args(params: SamplingParams) -> None:
    if params.extra_args is None:
        return
    try:
        size = len(msgspec.msgpack.encode(params.extra_args))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise RequestError(
            f"extra_args can't be sent to the engine: {error}", "extra_args"
        ) from None
    if size > MAX_EXTRA_ARGS_BYTES:
        raise RequestError(
            f"extra_args takes {size} bytes; at most {MAX_EXTRA_ARGS_BYTES}", "extra_args"
        )
