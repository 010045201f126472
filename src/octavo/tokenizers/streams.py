"""Text streams: token ids in, one at a time, text out that never has to be taken back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from codecs import utf_8_decode
from collections.abc import Sequence

from octavo.tokenizers.pieces import DecoderKind
from octavo.tokenizers.tokenizer import Tokenizer

MAX_HELD_TOKENS = 16
_REPLACEMENT = "\ufffd"
_PROMPT_WINDOW = 8  # tokens of the prompt that may reach into the text that follows


class TextStream(ABC):
    """The text of the tokens that follow a prompt.

    All pieces joined, flush() last, equal the tokenizer's one-shot decode of prompt and output
    without its decode of the prompt. A character that the prompt's last tokens began belongs to
    the output; a character they broke does not.
    """

    @abstractmethod
    def feed(self, token_id: int) -> str:
        """The text that is certain now that this token is known."""

    @abstractmethod
    def flush(self) -> str:
        """What was held back, when no token follows; incomplete bytes become U+FFFD."""

    def lag(self, characters: int) -> int:
        """How many of the tokens fed came after the one that completed the first `characters`
        characters of the text last returned. 0 where text is not held back.
        """
        del characters
        return 0

    @property
    def num_held(self) -> int:
        """How many of the tokens fed, the last ones, may yet turn out to come after the end of the
        text: those whose text is held back and will be attributed to each by `lag`.
        """
        return 0


def open_stream(
    tokenizer: Tokenizer | None, prompt_ids: Sequence[int], skip_special_tokens: bool
) -> TextStream:
    """The stream for what follows `prompt_ids`, by the method the tokenizer's decoder allows.

    Without a tokenizer it gives no text.
    """
    if tokenizer is None:
        return _NoText()
    skipped = tokenizer.all_special_ids if skip_special_tokens else frozenset()
    if tokenizer.decoder_kind is DecoderKind.BYTE_LEVEL:
        return _ByteLevelStream(tokenizer, prompt_ids, skipped)
    if tokenizer.decoder_kind is DecoderKind.BYTE_FALLBACK:
        return _ByteFallbackStream(tokenizer, prompt_ids, skipped)
    return _WindowStream(tokenizer, prompt_ids, skip_special_tokens)


class _NoText(TextStream):
    def feed(self, token_id: int) -> str:
        return ""

    def flush(self) -> str:
        return ""


class _ByteLevelStream(TextStream):
    """Every token is bytes: an incremental UTF-8 decoder is exact."""

    def __init__(
        self, tokenizer: Tokenizer, prompt_ids: Sequence[int], skipped: frozenset[int]
    ) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._whole_texts = tokenizer.whole_texts
        self._skipped = skipped
        self._pending = _open_character(tokenizer, prompt_ids)
        self._inherited = bool(self._pending)

    def feed(self, token_id: int) -> str:
        if token_id in self._skipped:
            return ""
        pending = self._pending
        if not pending:
            whole = self._whole_texts.get(token_id)
            if whole is not None:
                return whole
        data = self._token_bytes(token_id)
        if pending:
            if self._inherited and data:
                self._inherited = False
                if not _continues(pending, data):
                    pending = b""
            data = pending + data
        text, used = utf_8_decode(data, "replace", False)
        self._pending = data[used:]
        if not pending and used == len(data):
            self._whole_texts[token_id] = text
        return text

    def flush(self) -> str:
        data, self._pending = self._pending, b""
        return "" if self._inherited else data.decode(errors="replace")


class _ByteFallbackStream(TextStream):
    """Tokens are text, save runs of byte tokens, which one invalid byte spoils as a whole.

    The decoder of `tokenizers` writes a run of byte tokens as text if all of it is UTF-8, else as
    one U+FFFD a byte, so a run is held until it ends. A run longer than MAX_HELD_TOKENS (a script
    the vocabulary lacks) flows character by character; if it turns out invalid after that, the
    characters already given stay.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt_ids: Sequence[int], skipped: frozenset[int]
    ) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._byte_ids = tokenizer.byte_token_ids
        self._skipped = skipped
        self._at_start = tokenizer.strips_leading_space and not any(
            token_id not in skipped and tokenizer.token_bytes(token_id) for token_id in prompt_ids
        )
        self._fed = 0
        self._run = _open_character(tokenizer, prompt_ids)
        self._inherited = len(self._run)  # bytes of the run that the prompt brought
        self._ends = [0] * self._inherited  # how many tokens had been fed at each byte of the run
        self._flowing = False
        self._returned_ends: list[int] = []  # the same for each character last returned

    def feed(self, token_id: int) -> str:
        self._fed += 1
        if token_id in self._skipped:
            return ""
        data = self._token_bytes(token_id)
        if token_id not in self._byte_ids:
            if not data:
                return ""
            run = self._close_run()
            return self._strip(run + data.decode())
        only_inherited = self._inherited and self._inherited == len(self._run)
        if only_inherited and not _continues(self._run, data):
            self._drop_run()
        self._run += data
        self._ends.append(self._fed)
        self._flowing = self._flowing or len(self._run) > MAX_HELD_TOKENS
        return self._strip(self._complete_characters()) if self._flowing else ""

    def flush(self) -> str:
        return self._strip(self._close_run())

    def lag(self, characters: int) -> int:
        if characters > len(self._returned_ends):
            return 0
        return self._fed - self._returned_ends[characters - 1]

    @property
    def num_held(self) -> int:
        if self._flowing or self._inherited == len(self._run):
            return 0
        return self._fed - self._ends[self._inherited] + 1

    def _complete_characters(self) -> str:
        text, used = utf_8_decode(self._run, "replace", False)
        self._returned_ends = _ends_of_characters(text, self._ends[:used])
        self._run, self._ends, self._inherited = self._run[used:], self._ends[used:], 0
        return text

    def _close_run(self) -> str:
        """The text of the run, which ends here."""
        if self._inherited == len(self._run):
            text, self._returned_ends = "", []
        else:
            try:
                text = self._run.decode()
                self._returned_ends = _ends_of_characters(text, self._ends)
            except UnicodeDecodeError:
                self._returned_ends = self._ends[self._inherited :]
                text = _REPLACEMENT * len(self._returned_ends)
        self._drop_run()
        return text

    def _drop_run(self) -> None:
        self._run, self._ends, self._inherited, self._flowing = b"", [], 0, False

    def _strip(self, text: str) -> str:
        if self._at_start and text:
            self._at_start = False
            if text.startswith(" "):
                self._returned_ends = self._returned_ends[1:]
                return text[1:]
        return text


class _WindowStream(TextStream):
    """Any other decoder: decode a window of tokens twice, with and without the newest.

    Text that ends in U+FFFD is held, for at most MAX_HELD_TOKENS tokens.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt_ids: Sequence[int], skip_special_tokens: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._ids = list(prompt_ids[-_PROMPT_WINDOW:])
        self._given = len(self._ids)  # tokens of the window whose text has been given
        self._before = self._decode().rstrip(_REPLACEMENT)

    def feed(self, token_id: int) -> str:
        self._ids.append(token_id)
        text = self._decode()
        held = len(self._ids) - self._given
        if text.endswith(_REPLACEMENT) and held <= MAX_HELD_TOKENS:
            return ""
        return self._give(text)

    def flush(self) -> str:
        return self._give(self._decode())

    def _give(self, text: str) -> str:
        new = text[len(self._before) :]
        if new:
            self._ids = self._ids[self._given :]
            self._given = len(self._ids)
            self._before = self._decode()
        return new

    def _decode(self) -> str:
        return self._tokenizer.decode(self._ids, skip_special_tokens=self._skip)


def _open_character(tokenizer: Tokenizer, prompt_ids: Sequence[int]) -> bytes:
    """The bytes of a character that the prompt's end leaves incomplete, at most 3."""
    tail = b""
    for token_id in reversed(prompt_ids[-_PROMPT_WINDOW:]):
        if len(tail) >= 3 or token_id in tokenizer.all_special_ids:
            break
        tail = tokenizer.token_bytes(token_id) + tail
    tail = tail[-3:]
    return tail[utf_8_decode(tail, "replace", False)[1] :]


def _continues(pending: bytes, data: bytes) -> bool:
    """Whether the first byte of `data` can follow the incomplete character `pending`."""
    return _REPLACEMENT not in utf_8_decode(pending + data[:1], "replace", False)[0]


def _ends_of_characters(text: str, ends: list[int]) -> list[int]:
    """ends: a value for each UTF-8 byte -> the value of each character's last byte."""
    positions, at = [], 0
    for character in text:
        at = min(at + len(character.encode()), len(ends))
        positions.append(ends[at - 1])
    return positions
