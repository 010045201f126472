"""Default sampling parameters and end-of-sequence ids, from a model's files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.config import hf
from octavo.config.convert import nearest
from octavo.config.defaults import Notes
from octavo.types.errors import ConfigError, RequestError
from octavo.types.sampling_params import SamplingParams

# Entry of generation_config.json -> field of SamplingParams.
_FIELDS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_tokens",
    "max_tokens": "max_tokens",
}


def sampling_defaults(
    generation_config: Mapping[str, Any], overrides: Mapping[str, Any], notes: Notes
) -> dict[str, Any]:
    """SamplingParams fields: those of the file, then those of `overrides` over them.

    A value of the file that SamplingParams refuses is left out and noted; one of `overrides`
    raises ConfigError.
    """
    defaults: dict[str, Any] = {}
    for key, value in generation_config.items():
        if key not in _FIELDS or value is None:
            continue
        try:
            SamplingParams(**{_FIELDS[key]: value})
        except RequestError as error:
            notes.add(f"{key} of the model's generation_config.json is ignored: {error}")
            continue
        defaults[_FIELDS[key]] = value
    if defaults:
        shown = ", ".join(f"{key}={value}" for key, value in defaults.items())
        notes.add(
            f"default sampling parameters from the model's generation_config.json: {shown} "
            "(--generation-config vllm: neutral ones)"
        )
    for key, value in overrides.items():
        if key not in _FIELDS:
            raise ConfigError(
                f"override_generation_config has the unknown entry {key!r}{nearest(key, _FIELDS)}"
            )
        try:
            SamplingParams(**{_FIELDS[key]: value})
        except RequestError as error:
            raise ConfigError(f"override_generation_config: {error}") from None
        defaults[_FIELDS[key]] = value
    return defaults


def eos_token_ids(
    arch_ids: tuple[int, ...], generation_config: Mapping[str, Any]
) -> tuple[int, ...]:
    """Ids that end a sequence: config.json's first, then what generation_config.json adds."""
    more = hf.token_ids(generation_config.get("eos_token_id"), "eos_token_id")
    return tuple(dict.fromkeys((*arch_ids, *more)))
