"""The marks of a model's thinking as token ids, for requests with a thinking_token_budget."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.entrypoints.reasoning.interface import ReasoningSyntax
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.sampling_extras import MAX_MARK_TOKENS, MAX_MARKS, ThinkingMarks


def thinking_marks(
    syntax: ReasoningSyntax, tokenizer: Tokenizer, *, inside: bool = False
) -> ThinkingMarks:
    """What a family's starts and ends are in tokens; `inside`: the output begins in thinking.

    Marks that are special tokens, as most families have them, are found wherever they stand. One
    of ordinary text is found where the model spells it with the tokens of the text alone.
    """
    return ThinkingMarks(
        _token_ids(syntax.starts, tokenizer), _token_ids(syntax.ends, tokenizer), inside
    )


def _token_ids(texts: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    found = [tokenizer.encode(text, False) for text in texts]
    return [ids for ids in found if 0 < len(ids) <= MAX_MARK_TOKENS][:MAX_MARKS]
