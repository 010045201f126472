"""Request fields and the server's defaults -> SamplingParams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from octavo.entrypoints.openai.schema.common import GenerationBody
from octavo.entrypoints.openai.structure import read_structure
from octavo.types.errors import RequestError
from octavo.types.sampling_params import RequestOutputKind, SamplingParams

# Fields that mean the same in a request as in SamplingParams.
_SAME = (
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
    "dynatemp_range",
    "dynatemp_exponent",
    "mirostat_mode",
    "mirostat_tau",
    "mirostat_eta",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "seed",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "min_tokens",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "detokenize",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "include_stop_str_in_output",
    "truncate_prompt_tokens",
    "skip_reading_prefix_cache",
    "thinking_token_budget",
    "repetition_detection",
)


class SamplingDefaults:
    """What holds where a request says nothing."""

    def __init__(self, values: Mapping[str, Any], max_model_len: int, max_logprobs: int) -> None:
        self._values = dict(values)
        self._default_max_tokens = self._values.pop("max_tokens", None)
        self._max_model_len = max_model_len
        self._max_logprobs = max_logprobs

    def params(
        self,
        body: GenerationBody,
        *,
        logprobs: int | None,
        prompt_logprobs: int | None,
        max_tokens: int | None,
        default_max_tokens: int | None = None,
    ) -> SamplingParams:
        """Parameters of a request; its explicit values win, also neutral ones.

        Without `max_tokens` the model's default holds, then `default_max_tokens`, then what
        there is room for. Raises RequestError.
        """
        values = dict(self._values)
        for name in _SAME:
            value = getattr(body, name)
            if value is not None:
                values[name] = value
        if max_tokens is None:
            max_tokens = default_max_tokens
            if self._default_max_tokens is not None:
                max_tokens = self._default_max_tokens
        return SamplingParams(
            **values,
            max_tokens=max_tokens,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            structured_outputs=read_structure(body.response_format, body.structured_outputs),
            extra_args=body.vllm_xargs,
            output_kind=RequestOutputKind.DELTA if body.stream else RequestOutputKind.FINAL_ONLY,
        )

    def with_room(self, params: SamplingParams, num_prompt_tokens: int) -> SamplingParams:
        """`params` with a max_tokens that fits; for a max_tokens that is only a default."""
        truncate = params.truncate_prompt_tokens
        if truncate is not None and truncate > 0:
            num_prompt_tokens = min(num_prompt_tokens, truncate)
        room = max(1, self._max_model_len - num_prompt_tokens)
        if params.max_tokens is None or params.max_tokens <= room:
            return params
        return msgspec.structs.replace(params, max_tokens=room)

    def check_logprobs(self, value: int | None, param: str) -> None:
        """Raises RequestError for more logprobs than the server gives, and for less than none."""
        limit = self._max_logprobs
        if value is None:
            return
        if value < -1:
            raise RequestError(f"{param}={value} is below 0", param)
        if limit >= 0 and (value > limit or value == -1):
            raise RequestError(f"{param}={value} is above the server's max_logprobs={limit}", param)
