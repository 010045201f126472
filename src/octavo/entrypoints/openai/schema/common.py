"""Request fields that chat and completions share, and the usage they report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from octavo.entrypoints.openai.structure import structure_names
from octavo.types.sampling_extras import RepetitionDetectionParams

# Fields of other servers and of the OpenAI API that would change the answer and can't be
# honoured: name -> the values that ask for nothing.
_REFUSED: dict[str, tuple[Any, ...]] = {
    "best_of": (None, 1),
    "early_stopping": (None, False),
    "guided_choice": (None,),
    "guided_grammar": (None,),
    "guided_json": (None,),
    "guided_regex": (None,),
    "kv_transfer_params": (None, {}),
    "logits_processors": (None, []),
    "logprob_token_ids": (None, []),
    "prompt_embeds": (None,),
}

# Fields that ask for nothing that shows in the answer.
_HARMLESS = frozenset(
    {
        "include_reasoning",
        "metadata",
        "parallel_tool_calls",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)


class RequestBody(msgspec.Struct, kw_only=True):
    """A JSON body; every field is optional unless the endpoint can't do without it."""

    refused: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    reasons: ClassVar[Mapping[str, str]] = {}  # why a field is refused, and what to do instead
    harmless: ClassVar[frozenset[str]] = frozenset({"user"})

    model: str | None = None

    def field_names(self) -> Mapping[str, str]:
        """What the engine calls otherwise: its name -> the field of this request."""
        return {}


class StreamOptions(msgspec.Struct, kw_only=True):
    """What a stream carries beside the text."""

    include_usage: bool | None = None  # one chunk with the usage before the end
    continuous_usage_stats: bool | None = None  # usage so far in every chunk


class GenerationBody(RequestBody, kw_only=True):
    """What every request for text may say; None stands for the server's default."""

    refused: ClassVar[Mapping[str, tuple[Any, ...]]] = _REFUSED
    harmless: ClassVar[frozenset[str]] = _HARMLESS

    n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    mirostat_mode: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: list[str] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    detokenize: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    truncate_prompt_tokens: int | None = None
    prompt_logprobs: int | None = None
    skip_reading_prefix_cache: bool | None = None
    use_beam_search: bool | None = None  # n beams; see octavo.types.beam_search
    length_penalty: float | None = None
    thinking_token_budget: int | None = None
    repetition_detection: RepetitionDetectionParams | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    vllm_xargs: dict[str, Any] | None = None  # for LogitsProcessor plug-ins

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    add_special_tokens: bool | None = None
    priority: int | None = None
    cache_salt: str | None = None
    request_id: str | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None

    def field_names(self) -> Mapping[str, str]:
        """See RequestBody."""
        names = {"extra_args": "vllm_xargs", "beam_width": "n"}
        return {**names, **structure_names(self.response_format)}


class PromptTokensDetails(msgspec.Struct):
    """Where the prompt's tokens came from."""

    cached_tokens: int


class Usage(msgspec.Struct, omit_defaults=True):
    """Tokens in and out of one request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None


# Token id as a string -> {"logprob", "rank", "decoded_token"}, or null for the first token.
PromptLogprobs = list[dict[str, dict[str, Any]] | None]
