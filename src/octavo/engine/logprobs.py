"""Log-probabilities of the engine core -> output objects with readable tokens."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Protocol

from octavo.types.engine_output import TokenLogprobs
from octavo.types.outputs import Logprob, PositionLogprobs

MAX_UTF8_BYTES = 4


class TokenBytes(Protocol):
    """The part of a Tokenizer that is needed here."""

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for."""


class LogprobsProcessor:
    """Collects one sequence's log-probabilities in order.

    A byte-level token may hold a part of a character. Its readable form is what it completes:
    the bytes left open by the tokens before it count, and a token that completes nothing reads
    as "". So the decoded tokens, joined, are the text wherever that is valid UTF-8.
    """

    def __init__(self, tokenizer: TokenBytes | None, prompt_token_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._prompt_token_ids = prompt_token_ids
        self._tail: bytes | None = None  # of prompt + output; made when first needed
        self.logprobs: list[PositionLogprobs] = []  # those not taken yet
        self._num_taken = 0
        self.prompt_logprobs: list[PositionLogprobs | None] = []
        self.cumulative = 0.0
        self._sampled: list[float] = []
        self._prompt_tail = b""

    def add(self, entries: Iterable[TokenLogprobs]) -> None:
        """Append the next output positions."""
        if self._tail is None:
            self._tail = self._tail_of(self._prompt_token_ids[-MAX_UTF8_BYTES:])
        for entry in entries:
            self.logprobs.append(self._read(entry, self._tail))
            self._sampled.append(entry.logprobs[0])
            self.cumulative += entry.logprobs[0]
            self._tail = self._advance(self._tail, entry.token_ids[0])

    def add_prompt(self, entries: Iterable[TokenLogprobs | None]) -> None:
        """Append the next prompt positions; the first position of a prompt has none."""
        for entry in entries:
            if not self.prompt_logprobs:
                self.prompt_logprobs.append(None)
                self._prompt_tail = self._tail_of(self._prompt_token_ids[:1])
            if entry is None:
                continue
            self.prompt_logprobs.append(self._read(entry, self._prompt_tail))
            self._prompt_tail = self._advance(self._prompt_tail, entry.token_ids[0])

    def take(self, count: int) -> list[PositionLogprobs]:
        """The next `count` output positions. They are not kept: a long stream would hold thousands
        of objects per sequence.
        """
        taken, self.logprobs = self.logprobs[:count], self.logprobs[count:]
        self._num_taken += len(taken)
        return taken

    def finish_prompt(self) -> list[PositionLogprobs | None]:
        """Every prompt position, also of a prompt of one token, which nothing predicts."""
        return self.prompt_logprobs or [None]

    def truncate(self, num_tokens: int) -> None:
        """Forget output positions from `num_tokens` on (a stop string ended the text before)."""
        if len(self._sampled) <= num_tokens:
            return
        del self.logprobs[max(0, num_tokens - self._num_taken) :]
        del self._sampled[num_tokens:]
        self.cumulative = sum(self._sampled)

    def _read(self, entry: TokenLogprobs, tail: bytes) -> PositionLogprobs:
        position: PositionLogprobs = {}
        ranks = [entry.rank, *range(1, len(entry.token_ids))]
        for token, logprob, rank in zip(entry.token_ids, entry.logprobs, ranks, strict=True):
            if token not in position:
                position[token] = Logprob(logprob, rank, self._text_of(token, tail))
        return position

    def _text_of(self, token: int, tail: bytes) -> str | None:
        if self._tokenizer is None:
            return None
        data = self._tokenizer.token_bytes(token)
        if tail and data and _continues(data[0]):
            data = tail + data
        return codecs.getincrementaldecoder("utf-8")("replace").decode(data)

    def _tail_of(self, token_ids: Sequence[int]) -> bytes:
        tail = b""
        for token in token_ids:
            tail = self._advance(tail, token)
        return tail

    def _advance(self, tail: bytes, token: int) -> bytes:
        if self._tokenizer is None:
            return b""
        return open_bytes(tail + self._tokenizer.token_bytes(token))


def open_bytes(data: bytes) -> bytes:
    """The bytes at the end that begin a UTF-8 character and do not complete it."""
    for length in range(1, min(MAX_UTF8_BYTES, len(data) + 1)):
        byte = data[-length]
        if _continues(byte):
            continue
        return data[-length:] if _character_bytes(byte) > length else b""
    return b""


def _continues(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def _character_bytes(first: int) -> int:
    """Bytes of the character that this byte begins."""
    if first >= 0xF0:
        return 4
    if first >= 0xE0:
        return 3
    return 2 if first >= 0xC0 else 1
