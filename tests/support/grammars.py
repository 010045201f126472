"""Grammars over the byte-level test tokenizer: walks along masks, and what comes out."""

from __future__ import annotations

import functools
import random

import numpy as np

from octavo.structured_output.backends.guidance import GuidanceBackend
from octavo.structured_output.interface import Grammar, GrammarBackend, Vocabulary, mask_width
from support.tiny_tokenizer import byte_level

MODEL_VOCAB = 331  # eleven more than the tokenizer knows


@functools.cache
def vocabulary() -> Vocabulary:
    tokenizer = byte_level()
    assert tokenizer.eos_token_id is not None
    size = max(MODEL_VOCAB, tokenizer.vocab_size + 11)
    return Vocabulary(tokenizer, size, (tokenizer.eos_token_id,))


@functools.cache
def guidance() -> GuidanceBackend:
    return GuidanceBackend(vocabulary())


def allowed(backend: GrammarBackend, grammar: Grammar) -> set[int]:
    """The tokens that may come next."""
    size = vocabulary().size
    masks = np.zeros((1, mask_width(size)), np.int32)
    backend.fill([(grammar, 0)], masks)
    bits = np.unpackbits(masks.view(np.uint8), bitorder="little")[:size]
    return set(bits.nonzero()[0].tolist())


def walk(backend: GrammarBackend, grammar: Grammar, seed: int, most: int = 400) -> str | None:
    """A random text of the grammar; None if it has not ended after `most` tokens."""
    rng = random.Random(seed)
    (eos,) = vocabulary().eos_token_ids
    tokens: list[int] = []
    for _ in range(most):
        choice = rng.choice(sorted(allowed(backend, grammar)))
        if choice == eos:
            return b"".join(map(vocabulary().tokenizer.token_bytes, tokens)).decode()
        tokens.append(choice)
        grammar.accept([choice])
    return None
