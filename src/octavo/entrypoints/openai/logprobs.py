"""Log-probabilities of the engine -> the shapes of the three APIs that report them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from octavo.entrypoints.openai.schema.chat import ChatLogprob, ChatLogprobs, TokenLogprob
from octavo.entrypoints.openai.schema.common import PromptLogprobs
from octavo.entrypoints.openai.schema.completion import CompletionLogprobs
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.outputs import Logprob, PositionLogprobs

LOWEST = -9999.0  # stands for minus infinity, which JSON can't hold


class LogprobsFormatter:
    """Writes one request's log-probabilities; `top` likeliest tokens per position (-1: all).

    With `as_token_ids`, tokens are written "token_id:N", so that no two look alike.
    """

    def __init__(self, tokenizer: Tokenizer | None, top: int, as_token_ids: bool) -> None:
        self._tokenizer = tokenizer
        self._top = top
        self._as_token_ids = as_token_ids or tokenizer is None

    def chat(self, token_ids: Sequence[int], positions: Sequence[PositionLogprobs]) -> ChatLogprobs:
        """`choices[].logprobs` of chat."""
        content = []
        for token_id, position in zip(token_ids, positions, strict=True):
            chosen = position[token_id]
            top = [
                TokenLogprob(self._text(i, entry), _finite(entry), self._bytes(i))
                for i, entry in self._likeliest(position)
            ]
            content.append(
                ChatLogprob(
                    self._text(token_id, chosen), _finite(chosen), self._bytes(token_id), top
                )
            )
        return ChatLogprobs(content)

    def completion(
        self,
        token_ids: Sequence[int],
        positions: Sequence[PositionLogprobs | None],
        offset: int,
    ) -> tuple[CompletionLogprobs, int]:
        """`choices[].logprobs` of completions, and where the next token is.

        The first token is at character `offset` of the text; each is as long as what it adds to
        the text, however it is written here.
        """
        result = CompletionLogprobs([], [], [], [])
        for token_id, position in zip(token_ids, positions, strict=True):
            if position is None:
                added = self._lone_text(token_id)
                text = f"token_id:{token_id}" if self._as_token_ids else added
                result.token_logprobs.append(None)
                result.top_logprobs.append(None)
            else:
                chosen = position[token_id]
                added = chosen.decoded_token or ""
                text = self._text(token_id, chosen)
                shown = {text: _finite(chosen)}
                for i, entry in self._likeliest(position):
                    shown.setdefault(self._text(i, entry), _finite(entry))
                result.token_logprobs.append(_finite(chosen))
                result.top_logprobs.append(shown)
            result.text_offset.append(offset)
            result.tokens.append(text)
            offset += len(added)
        return result, offset

    def _likeliest(self, position: PositionLogprobs) -> list[tuple[int, Logprob]]:
        ranked = sorted(position.items(), key=lambda item: item[1].rank)
        if self._top < 0:
            return ranked
        return [(i, entry) for i, entry in ranked if entry.rank <= self._top]

    def _text(self, token_id: int, entry: Logprob) -> str:
        if self._as_token_ids or entry.decoded_token is None:
            return f"token_id:{token_id}"
        return entry.decoded_token

    def _lone_text(self, token_id: int) -> str:
        if self._tokenizer is None:
            return ""
        return self._tokenizer.token_bytes(token_id).decode(errors="replace")

    def _bytes(self, token_id: int) -> list[int] | None:
        return None if self._tokenizer is None else list(self._tokenizer.token_bytes(token_id))


def prompt_logprobs(positions: Iterable[PositionLogprobs | None]) -> PromptLogprobs:
    """`prompt_logprobs`: per prompt token its own and the likeliest log-probabilities."""
    return [None if position is None else _prompt_position(position) for position in positions]


def _prompt_position(position: PositionLogprobs) -> dict[str, dict[str, Any]]:
    return {
        str(token_id): {
            "logprob": _finite(entry),
            "rank": entry.rank,
            "decoded_token": entry.decoded_token,
        }
        for token_id, entry in position.items()
    }


def _finite(entry: Logprob) -> float:
    return max(entry.logprob, LOWEST)
