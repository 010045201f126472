"""The prompts of a completion request: texts or lists of token ids, one or several."""

from __future__ import annotations

from typing import Any

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.limits import MAX_PROMPTS, MAX_SEQUENCES
from octavo.entrypoints.openai.prompts import Prompt
from octavo.entrypoints.openai.schema.completion import CompletionRequest
from octavo.types.errors import RequestError


async def completion_prompts(
    context: ServerContext, body: CompletionRequest, n: int
) -> list[Prompt]:
    """The prompts of a request, in their order. Raises RequestError."""
    texts, ids = _sources(body.prompt)
    count = len(texts) + len(ids)
    if count > MAX_PROMPTS:
        raise RequestError(f"prompt has {count} entries; at most {MAX_PROMPTS}", "prompt")
    if count * n > MAX_SEQUENCES:
        raise RequestError(f"{count} prompts x n={n} are more than {MAX_SEQUENCES} sequences", "n")
    truncate = body.truncate_prompt_tokens is not None
    if ids:
        return context.prompts.from_ids(ids, truncate=truncate)
    return await context.prompts.from_texts(
        texts, add_special_tokens=body.add_special_tokens is not False, truncate=truncate
    )


def _sources(prompt: str | list[Any]) -> tuple[list[str], list[list[int]]]:
    """(texts, lists of token ids) of a request, one of them empty."""
    if isinstance(prompt, str):
        return [prompt], []
    kinds = {type(entry) for entry in prompt}
    if not prompt:
        raise RequestError("prompt is an empty list; send at least one prompt", "prompt")
    if len(kinds) > 1:
        raise RequestError("prompt mixes texts, token ids and lists; use one kind", "prompt")
    if kinds == {str}:
        return prompt, []
    return [], [prompt] if kinds == {int} else prompt
