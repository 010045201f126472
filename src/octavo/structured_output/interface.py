"""Grammar and GrammarBackend: what a library for grammars must do; BACKENDS, the table of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.errors import RequestError
from octavo.types.sampling_params import StructuredOutputsParams
from octavo.utils.registry import Registry

MaskArray = npt.NDArray[np.int32]


def mask_width(vocab_size: int) -> int:
    """int32 words of a row of masks; bit t % 32 of word t // 32 says whether token t may come."""
    return (vocab_size + 31) // 32


class GrammarError(RequestError):
    """A grammar can't be used: it is not valid, asks for what nothing enforces, or costs too much.

    `param` is the field of StructuredOutputsParams at fault.
    """


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What grammars are compiled for.

    `size` counts the model's logits, which may be more than the tokenizer has tokens.
    """

    tokenizer: Tokenizer
    size: int
    eos_token_ids: tuple[int, ...]

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that a library takes for ends: without EOS tokens one that is never text."""
        return self.eos_token_ids or (self.size - 1,)


class Grammar(ABC):
    """The state of one text under a grammar."""

    # Tokens of a short text that the grammar takes, where somebody has looked for one.
    shortest: tuple[int, ...] | None = None

    @abstractmethod
    def copy(self) -> Grammar:
        """Another text in the same state."""

    @abstractmethod
    def accept(self, token_ids: Sequence[int]) -> None:
        """The text goes on with these tokens. Raises GrammarError if it may not."""

    @property
    @abstractmethod
    def may_end(self) -> bool:
        """Whether the text so far is complete."""

    @abstractmethod
    def completes(self, token_ids: Sequence[int]) -> bool:
        """Whether the text would be complete after these tokens; it stays as it is."""

    @property
    @abstractmethod
    def error(self) -> str | None:
        """Why no mask can be made any more; None while it can."""

    @abstractmethod
    def forced(self) -> list[int]:
        """The tokens that must come next, as far as there is no choice; [] where there is one.

        `fill` allows the first of them and nothing else.
        """


class GrammarBackend(ABC):
    """One library, for one vocabulary. Its methods may be called from any thread."""

    @abstractmethod
    def __init__(self, vocabulary: Vocabulary) -> None:
        """May take a second for a large vocabulary. Raises GrammarError for one it can't take."""

    @staticmethod
    @abstractmethod
    def check(spec: StructuredOutputsParams) -> None:
        """Raise GrammarError for what `compile` would refuse, as far as no vocabulary is needed."""

    @abstractmethod
    def compile(self, spec: StructuredOutputsParams) -> Grammar:
        """The grammar at the beginning of a text. Raises GrammarError."""

    @abstractmethod
    def fill(self, grammars: Sequence[tuple[Grammar, int]], masks: MaskArray) -> None:
        """Write row `r` of masks[R, mask_width] for each (grammar, r): the tokens that may come.

        EOS tokens may come exactly where the text may end. A grammar that runs into a limit gets
        an `error` and any row; nothing is raised. Other threads can run meanwhile.
        """


BACKENDS: Registry[type[GrammarBackend]] = Registry(
    "structured output backend",
    {
        "guidance": "octavo.structured_output.backends.guidance:GuidanceBackend",
        "xgrammar": "octavo.structured_output.backends.xgrammar:XGrammarBackend",
    },
)
