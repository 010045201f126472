"""The forms a prompt may take, and the one form the engine works with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict, cast

from octavo.types.errors import RequestError

MAX_CACHE_SALT = 1024  # characters


class PromptDict(TypedDict):
    """A prompt with options. With both, the ids are what runs and the text is shown."""

    prompt: NotRequired[str]
    prompt_token_ids: NotRequired[list[int]]
    cache_salt: NotRequired[str]


Prompt = str | Sequence[int] | PromptDict | Mapping[str, object]

_KEYS = frozenset({"prompt", "prompt_token_ids", "cache_salt"})


@dataclass(frozen=True, slots=True)
class ParsedPrompt:
    """A prompt of which at least one of text and token ids is there."""

    text: str | None
    token_ids: list[int] | None
    cache_salt: str | None = None


def parse_prompt(prompt: Prompt, cache_salt: str | None = None) -> ParsedPrompt:
    """Read a prompt: text, token ids, or a dict with `prompt`, `prompt_token_ids`, `cache_salt`.

    Raises RequestError for other types and keys, text that is not valid Unicode and empty salts.
    What the ids stand for is checked later.
    """
    if isinstance(prompt, str):
        return ParsedPrompt(check_text(prompt, "prompt"), None, _check_salt(cache_salt))
    if not isinstance(prompt, Mapping):
        return ParsedPrompt(None, _check_ids(prompt, "prompt"), _check_salt(cache_salt))
    unknown = sorted(str(key) for key in prompt.keys() - _KEYS)
    if unknown:
        raise RequestError(
            f"the prompt has the key {unknown[0]!r}; this version takes {', '.join(sorted(_KEYS))}",
            "prompt",
        )
    text = prompt.get("prompt")
    ids = prompt.get("prompt_token_ids")
    if text is None and ids is None:
        raise RequestError("the prompt has neither `prompt` nor `prompt_token_ids`", "prompt")
    return ParsedPrompt(
        None if text is None else check_text(text, "prompt"),
        None if ids is None else _check_ids(ids, "prompt_token_ids"),
        _check_salt(prompt.get("cache_salt") if cache_salt is None else cache_salt),
    )


def prompt_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """A list of prompts; a list of integers is one prompt. Raises RequestError."""
    if isinstance(prompts, str | Mapping):
        return [prompts]
    if isinstance(prompts, bytes | bytearray) or not isinstance(prompts, Iterable):
        raise RequestError(
            f"prompts is {type(prompts).__name__}; give a string, a list of token ids, a dict, or "
            "a list of these",
            "prompts",
        )
    values = list(prompts)
    if values and isinstance(values[0], int):
        return [cast(Sequence[int], values)]
    return cast(list[Prompt], values)


def check_text(text: object, param: str) -> str:
    """`text` if it is a string of valid Unicode, else RequestError."""
    if not isinstance(text, str):
        raise RequestError(f"{param} is {type(text).__name__}, not a string", param)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{param} holds an unpaired surrogate at position {error.start}; send valid Unicode",
            param,
        ) from None
    return text


def _check_ids(ids: object, param: str) -> list[int]:
    if isinstance(ids, Sequence) and not isinstance(ids, str | bytes):
        values = list(ids)
        if set(map(type, values)) <= {int}:
            return values
        bad = next(value for value in values if type(value) is not int)
        raise RequestError(f"{param} holds {bad!r}; token ids are integers", param)
    raise RequestError(
        f"{param} is {type(ids).__name__}; use a string, a list of token ids or a dict", param
    )


def _check_salt(salt: object) -> str | None:
    if salt is None:
        return None
    if not isinstance(salt, str) or not salt:
        raise RequestError(f"cache_salt={salt!r}: expected a non-empty string", "cache_salt")
    if len(salt) > MAX_CACHE_SALT:
        raise RequestError(
            f"cache_salt has {len(salt)} characters; at most {MAX_CACHE_SALT}", "cache_salt"
        )
    return check_text(salt, "cache_salt")
