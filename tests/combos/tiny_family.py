"""TinyFamily: a tiny random model on disk, the workload for it and the plain answers."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from combos.answers import Answer
from combos.plain import PlainModel
from combos.requests import MAX_MODEL_LEN, Work, workload
from support.tiny_models import save_tiny
from support.tiny_tokenizer import byte_level_backend, save_tokenizer

VOCAB = 331  # eleven more than the tokenizer knows, and odd
EOS_TOKEN_IDS = (1, 2)  # of the model and of the tokenizer


@dataclass
class TinyFamily:
    """`folder` is what engines load; `plain` is the same model the slow way."""

    folder: Path
    plain: PlainModel

    @functools.cached_property
    def works(self) -> list[Work]:
        """The mixed requests."""
        return workload(self.plain)

    @functools.cached_property
    def expected(self) -> list[Answer]:
        """What must come of them."""
        return [self.plain.answer(work) for work in self.works]


def make_family(name: str, folder: Path) -> TinyFamily:
    """Save the model of a family of `support.tiny_models` with a tokenizer."""
    model = save_tiny(name, folder, vocab_size=VOCAB)
    tokenizer = byte_level_backend(320)
    save_tokenizer(folder, tokenizer)
    return TinyFamily(folder, PlainModel(model, tokenizer, EOS_TOKEN_IDS, MAX_MODEL_LEN))
