"""TextLogprobs: which tokens of an answer make up the text that is shown of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from octavo.entrypoints.openai.logprobs import LogprobsFormatter
from octavo.entrypoints.openai.schema.chat import ChatLogprob
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.outputs import PositionLogprobs

_HIDDEN = b"\xff"  # in the place of each byte of a special token; no text has it


class TextLogprobs:
    """Gives each piece of an answer's text the log-probabilities of its tokens.

    An answer's bytes are those of its tokens. Reasoning and text are found among them in their
    order, each where the one before it has ended, or behind one of `marks`, the texts that stand
    around reasoning and calls. A token at the border of two pieces belongs to the first.
    """

    def __init__(
        self, tokenizer: Tokenizer, formatter: LogprobsFormatter, marks: Sequence[str]
    ) -> None:
        self._tokenizer = tokenizer
        self._formatter = formatter
        spelled = [re.escape(mark.encode()) for mark in sorted(marks, key=len, reverse=True)]
        self._borders = re.compile(b"(?:" + b"|".join([_HIDDEN + b"+", *spelled]) + rb")\s*")
        self._bytes = bytearray()  # of tokens whose place is not known yet
        self._start = 0  # where `_bytes` begins in the answer
        self._tokens: list[tuple[int, ChatLogprob]] = []  # (where it ends in the answer, it)
        self._end = 0  # of the last token

    def add(self, token_ids: Sequence[int], positions: Sequence[PositionLogprobs]) -> None:
        """Take the tokens of an output, before its texts."""
        entries = self._formatter.chat(token_ids, positions).content
        for token_id, entry in zip(token_ids, entries, strict=True):
            data = self._tokenizer.token_bytes(token_id)
            if token_id in self._tokenizer.all_special_ids:
                data = _HIDDEN * len(data)
            self._bytes += data
            self._end += len(data)
            self._tokens.append((self._end, entry))

    def take(self, text: str) -> list[ChatLogprob]:
        """The tokens of the next piece of text, or of reasoning."""
        piece = text.encode()
        at = self._find(piece)
        begin = self._start + at
        end = min(begin + len(piece), self._end)
        taken = []
        count = 0
        last_end = self._start
        for token_end, entry in self._tokens:
            if last_end >= end:
                break
            if token_end > begin:
                taken.append(entry)
            last_end = token_end
            count += 1
        del self._tokens[:count]
        del self._bytes[: end - self._start]
        self._start = end
        return taken

    def _find(self, piece: bytes) -> int:
        """Where a piece begins in `_bytes`; 0 if it is spelled otherwise there."""
        data = self._bytes
        if data.startswith(piece):
            return 0
        blanks = len(data) - len(data.lstrip())
        behind_marks = (match.end() for match in self._borders.finditer(data))
        for place in (blanks, *behind_marks):
            if data.startswith(piece, place):
                return place
        return max(data.find(piece), 0)
