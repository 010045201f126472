"""Prompts: text and token ids, bounded before they are tokenized, tokenized off the event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from octavo.entrypoints.openai.workers import Workers
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.errors import RequestError

# More is tokenized in a thread: about a millisecond.
_INLINE_CHARS = 4096
_INLINE_TEXTS = 16
_NORMALIZED = 4  # a normalizer makes one character of at most four
_TRUNCATED = 4  # a prompt that will be truncated may be so many times too long
# A text with more characters per token that fits is tokenized in pieces first: freeing the
# encoding of megabytes takes a second in which nothing else runs.
_DOUBTFUL = 8
_PIECE = 1 << 17  # characters
_MARGIN = 1.1  # pieces may have a few tokens more than the whole


class PromptTooLongError(RequestError):
    """A text has more tokens than a prompt can have."""


class Prompt(NamedTuple):
    """A prompt as the engine takes it; `text` is None if it came as token ids."""

    token_ids: list[int]
    text: str | None


class PromptBuilder:
    """Makes prompts of what clients send."""

    def __init__(self, tokenizer: Tokenizer | None, max_model_len: int, workers: Workers) -> None:
        self._tokenizer = tokenizer
        self._max_model_len = max_model_len
        self._workers = workers
        self._max_chars = 0 if tokenizer is None else max_model_len * _most_chars(tokenizer)

    async def from_texts(
        self,
        texts: Sequence[str],
        *,
        add_special_tokens: bool,
        truncate: bool = False,
        param: str = "prompt",
    ) -> list[Prompt]:
        """Tokenize texts.

        A text that is too long whatever its tokens are is refused without tokenizing it. Raises
        RequestError.
        """
        tokenizer = self.tokenizer(param)
        limit = self._max_chars * (_TRUNCATED if truncate else 1)
        longest = max(map(len, texts))
        if longest > limit:
            raise PromptTooLongError(
                f"{param} has {longest} characters; a prompt of max_model_len="
                f"{self._max_model_len} tokens has at most {limit}",
                param,
            )

        most_tokens = self._max_model_len * (_TRUNCATED if truncate else 1)

        def encode() -> list[Prompt]:
            for text in texts:
                if len(text) > most_tokens * _DOUBTFUL:
                    _refuse_too_long(tokenizer, text, most_tokens, param)
            return [Prompt(tokenizer.encode(text, add_special_tokens), text) for text in texts]

        if sum(map(len, texts)) <= _INLINE_CHARS and len(texts) <= _INLINE_TEXTS:
            return encode()
        return await self._workers.run(encode)

    def from_ids(self, ids: Sequence[list[int]], *, truncate: bool = False) -> list[Prompt]:
        """Prompts that came as token ids; the engine looks at the ids. Raises RequestError."""
        limit = self._max_model_len * (_TRUNCATED if truncate else 1)
        longest = max(map(len, ids))
        if longest > limit:
            raise RequestError(f"prompt has {longest} tokens; at most {limit} fit", "prompt")
        return [Prompt(each, None) for each in ids]

    def tokenizer(self, param: str | None = None) -> Tokenizer:
        """The tokenizer, for a request that can't be served without one. Raises RequestError."""
        if self._tokenizer is None:
            raise RequestError("This server runs without a tokenizer; send token ids", param)
        return self._tokenizer


def _refuse_too_long(tokenizer: Tokenizer, text: str, most_tokens: int, param: str) -> None:
    """Raise RequestError for a text that certainly has more tokens, having read no more of it."""
    count = 0
    for start in range(0, len(text), _PIECE):
        count += len(tokenizer.encode(text[start : start + _PIECE], add_special_tokens=False))
        if count > most_tokens * _MARGIN:
            raise PromptTooLongError(
                f"{param} has {len(text)} characters, of which the first {start + _PIECE} are more "
                f"than {most_tokens} tokens; shorten it",
                param,
            )


def _most_chars(tokenizer: Tokenizer) -> int:
    """Most characters of a text that one token stands for."""
    vocabulary = tokenizer.backend.get_vocab(with_added_tokens=True)
    longest = max(map(len, vocabulary), default=1)
    return longest * (1 if tokenizer.backend.normalizer is None else _NORMALIZED)
