"""ReasoningParser: how one family marks its reasoning; REASONING_PARSERS, the table of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from octavo.utils.registry import Registry

_FAMILIES = "octavo.entrypoints.reasoning.families"


@dataclass(frozen=True)
class ReasoningSyntax:
    """How a family of models marks reasoning.

    An answer reasons from one of `starts` to one of `ends`. A start counts where the answer
    begins, after blanks; one that is a special token also later. `harmony`: the answer has
    gpt-oss's format, in which reasoning is a channel.
    """

    starts: tuple[str, ...] = ("<think>",)
    ends: tuple[str, ...] = ("</think>",)
    harmony: bool = False


class ReasoningParser:
    """A syntax of reasoning, for one server's tokenizer. It keeps nothing of any answer.

    `marks` gives what to look for in place of a text (see Marks): special tokens are told by id.
    """

    def __init__(self, syntax: ReasoningSyntax, marks: Callable[[str], str]) -> None:
        self.syntax = syntax
        self.starts = tuple(map(marks, syntax.starts))
        self.ends = tuple(map(marks, syntax.ends))
        self.starts_anywhere = tuple(
            mark for mark, text in zip(self.starts, syntax.starts, strict=True) if mark != text
        )
        self.harmony = syntax.harmony

    def begins_inside(self, prompt: str, continued: str | None = None) -> bool | None:
        """Whether an answer to this prompt begins within reasoning.

        A template that opens the reasoning ends with its start, one that keeps the model from
        reasoning ends with its end; None: the answer itself will tell. `continued` is the text of
        the message that the answer goes on with, if it does.
        """
        if continued is not None:
            start = max((continued.rfind(text) for text in self.syntax.starts), default=-1)
            end = max((continued.rfind(text) for text in self.syntax.ends), default=-1)
            if start >= 0 or end >= 0:
                return start > end
        tail = prompt[-256:].rstrip()
        if tail.endswith(tuple(text.rstrip() for text in self.syntax.starts)):
            return True
        if tail.endswith(tuple(text.rstrip() for text in self.syntax.ends)):
            return False
        return None if continued is None else False


REASONING_PARSERS: Registry[ReasoningSyntax] = Registry(
    "reasoning parser",
    {
        name: f"{_FAMILIES}:{entry}"
        for name, entry in {
            "deepseek_r1": "THINK",
            "deepseek_v3": "THINK",
            "ernie45": "THINK",
            "gemma4": "GEMMA4",
            "glm45": "THINK",
            "glm47": "THINK",
            "granite": "GRANITE",
            "kimi_k2": "THINK",
            "minimax_m2": "THINK",
            "minimax_m3": "MINIMAX_M3",
            "mistral": "MISTRAL",
            "nemotron": "THINK",
            "nemotron_v3": "THINK",
            "olmo3": "THINK",
            "openai_gptoss": "HARMONY",
            "qwen3": "THINK",
            "seed_oss": "SEED_OSS",
            "step3": "THINK",
        }.items()
    },
)
