"""The section about structured output: which library, what it may cost, defaults of requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.config.options import option


@dataclass(frozen=True, kw_only=True)
class StructuredOutputsOptions:
    """What may be asked about structured output."""

    structured_outputs_backend: Literal["auto", "guidance", "xgrammar"] = option(
        "auto", "Library that compiles grammars. auto: guidance (llguidance)."
    )
    grammar_compile_timeout: float = option(
        5.0, "Seconds in which a grammar must be compiled; else its request is refused.", low=0.1
    )
    disable_any_whitespace: bool = option(
        False,
        "Allow no blanks between the tokens of JSON unless a request says which.",
    )
    disable_additional_properties: bool = option(
        False,
        "Read a JSON schema that names properties and is silent about others as allowing none.",
    )
    finish_within_limit: bool = option(
        False,
        "Lead structured answers to a valid end before max_tokens cuts them, unless a request "
        "says otherwise.",
    )
    jump_forward: bool = option(
        True,
        "Append tokens that a grammar leaves no choice about without a step for each of them.",
    )
    enable_in_reasoning: bool = option(
        False, "Hold reasoning to the grammar, too; by default it begins after reasoning."
    )


@dataclass(frozen=True, kw_only=True)
class StructuredOutputsConfig(StructuredOutputsOptions):
    """The library, its budget and the defaults of requests."""

    @property
    def backend(self) -> str:
        """A registered name."""
        chosen = self.structured_outputs_backend
        return "guidance" if chosen == "auto" else chosen
