"""Parts of SamplingParams that are more than a number: loops, hidden states, marks of thinking."""

from __future__ import annotations

from typing import Literal

import msgspec

from octavo.types.checks import check_range
from octavo.types.errors import RequestError

MAX_PATTERN_SIZE = 1024  # of repetition_detection
MAX_HIDDEN_LAYERS = 1024
MAX_MARKS = 4  # of each kind, where thinking begins and ends
MAX_MARK_TOKENS = 16


class RepetitionDetectionParams(
    msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Ends an output that has become a loop: finish_reason "repetition".

    A loop is a pattern of `min_pattern_size` to `max_pattern_size` tokens that the output tokens
    end with `min_count` times in a row. `max_pattern_size` 0: off. Raises RequestError.
    """

    max_pattern_size: int = 0
    min_pattern_size: int = 0  # 0 is 1
    min_count: int = 2

    def __post_init__(self) -> None:
        where = "repetition_detection"
        check_range(f"{where}.max_pattern_size", self.max_pattern_size, 0, MAX_PATTERN_SIZE)
        check_range(f"{where}.min_pattern_size", self.min_pattern_size, 0, MAX_PATTERN_SIZE)
        check_range(f"{where}.min_count", self.min_count, 2, 1 << 20)
        if 0 < self.max_pattern_size < self.min_pattern_size:
            raise RequestError(
                f"{where}.min_pattern_size={self.min_pattern_size} is above "
                f"max_pattern_size={self.max_pattern_size}",
                f"{where}.min_pattern_size",
            )


class HiddenStatesParams(
    msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Which hidden states a request gets back; see CompletionOutput.hidden_states.

    Layers are counted as Hugging Face's `output_hidden_states` does: 0 is the embedding, i the
    output of the i-th layer, the last one that of the final norm; negative ones count from the
    end. `positions`: "prompt" (all of the prompt), "last" (its last token), "output" (the tokens
    fed back), or "all". Raises RequestError.
    """

    layers: list[int] = msgspec.field(default_factory=lambda: [-1])
    positions: Literal["last", "prompt", "output", "all"] = "last"

    def __post_init__(self) -> None:
        if not self.layers or len(self.layers) > MAX_HIDDEN_LAYERS:
            raise RequestError(
                f"hidden_states.layers has {len(self.layers)} entries; 1 to {MAX_HIDDEN_LAYERS} "
                "are possible",
                "hidden_states.layers",
            )


class ThinkingMarks(msgspec.Struct, array_like=True, omit_defaults=True):
    """The tokens between which a model thinks; each mark is one or more token ids.

    `inside`: the output begins within thinking, though the prompt does not end with a start. The
    first of `ends` is what is written when the budget is used up.
    """

    starts: list[list[int]] = []
    ends: list[list[int]] = []
    inside: bool = False

    def __post_init__(self) -> None:
        for kind in (self.starts, self.ends):
            longest = max(map(len, kind), default=1)
            if len(kind) > MAX_MARKS or not 1 <= longest <= MAX_MARK_TOKENS or [] in kind:
                raise RequestError(
                    f"thinking_marks: up to {MAX_MARKS} marks of 1 to {MAX_MARK_TOKENS} tokens "
                    "can be told from other text",
                    "thinking_token_budget",
                )
