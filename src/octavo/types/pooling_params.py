"""PoolingParams: what is made of the hidden states of one request."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from octavo.types.errors import RequestError

# embed: one vector of a text; classify: one score per label; token_*: the same of every token.
PoolingTask = Literal["embed", "classify", "token_embed", "token_classify"]
TASKS: tuple[PoolingTask, ...] = get_args(PoolingTask)
TOKEN_TASKS: tuple[PoolingTask, ...] = ("token_embed", "token_classify")

# Encoders that tell the first text of a pair from the second find this bit set in the ids of the
# second one's tokens; what is below it is the id.
SECOND_TEXT = 1 << 30
TOKEN_ID_MASK = SECOND_TEXT - 1


class PoolingParams(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Parameters of pooling; names and defaults are vLLM's.

    None stands for the model's default everywhere. Raises RequestError naming the field.
    """

    task: PoolingTask | None = None
    # Whether vectors are normalized to length 1, or logits become probabilities.
    use_activation: bool | None = None
    dimensions: int | None = None  # leading elements of an embedding to keep (arXiv 2205.13147)
    # Keep the first so many tokens of the prompt, its special tokens among them; -1: what fits.
    truncate_prompt_tokens: int | None = None
    # Of token tasks: only positions of this token (step rewards), only these columns.
    step_tag_id: int | None = None
    returned_token_ids: list[int] | None = None

    def __post_init__(self) -> None:
        if self.task is not None and self.task not in TASKS:
            raise RequestError(f"task={self.task!r} is none of {', '.join(TASKS)}", "task")
        if self.dimensions is not None and self.dimensions < 1:
            raise RequestError(f"dimensions={self.dimensions} must be at least 1", "dimensions")
        keep = self.truncate_prompt_tokens
        if keep is not None and keep != -1 and keep < 1:
            raise RequestError(
                f"truncate_prompt_tokens={keep} must be -1 (what fits) or at least 1",
                "truncate_prompt_tokens",
            )
