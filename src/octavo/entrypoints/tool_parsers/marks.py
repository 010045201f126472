"""Marks: special tokens as single characters, so that grammars read token ids as they read text."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.tokenizers.streams import open_stream
from octavo.tokenizers.tokenizer import Tokenizer

_FIRST = 0xD800  # halves of surrogate pairs: decoded text never holds them
_MOST = 0x800
_SHORTEST = 3  # characters of a special token that can be a mark


def is_mark(character: str) -> bool:
    """Whether a character stands for a special token."""
    return "\ud800" <= character <= "\udfff"


class Marks:
    """Which special tokens the syntaxes of a server are interested in.

    A mark that the tokenizer has as a special token is that token, whatever text may spell the
    same; every other mark is text, however it was tokenized. `spellings` gives the text of each
    character that stands for a token, `characters` the character of each token id. Without a
    tokenizer every mark is text.
    """

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self.characters: dict[int, str] = {}
        self.spellings: dict[str, str] = {}
        self._special: list[tuple[str, int]] = []
        if tokenizer is not None:
            ids = sorted(tokenizer.all_special_ids)
            spelled = zip(tokenizer.convert_ids_to_tokens(ids), ids, strict=True)
            self._special = sorted(
                ((text, id_) for text, id_ in spelled if text and len(text) >= _SHORTEST),
                key=lambda pair: -len(pair[0]),
            )

    def __call__(self, text: str) -> str:
        """What to look for in place of `text`: its special tokens are one character each."""
        for spelling, token_id in self._special:
            if spelling in text:
                text = text.replace(spelling, self._character(spelling, token_id))
        return text

    def spelled(self, text: str) -> str:
        """The text that `text` stands for."""
        return "".join(self.spellings.get(character, character) for character in text)

    def _character(self, spelling: str, token_id: int) -> str:
        known = self.characters.get(token_id)
        if known is None:
            if len(self.characters) == _MOST:
                raise ValueError("there are too many special tokens to look for")
            known = self.characters[token_id] = chr(_FIRST + len(self.characters))
            self.spellings[known] = spelling
        return known


class TokenText:
    """The text of an answer with marks in the place of special tokens.

    The engine's text must hold the special tokens (skip_special_tokens=False). It decides how
    much is out: it ends before a stop string, and begins of those are held back. Where in it a
    special token stands is found by decoding the tokens once more. Special tokens that are no
    marks are dropped with `skip_special_tokens`, else they stay as text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        marks: Marks,
        prompt_ids: Sequence[int],
        skip_special_tokens: bool,
    ) -> None:
        self._tokenizer = tokenizer
        self._special_ids = tokenizer.all_special_ids
        self._characters = marks.characters
        self._skip = skip_special_tokens
        self._stream = open_stream(tokenizer, prompt_ids, skip_special_tokens=False)
        # Texts the engine has not given out yet; those of special tokens with their replacement.
        self._ahead: list[tuple[str, str | None]] = []
        self._rest = ""  # a part of a special token's text

    def feed(self, text: str, token_ids: Sequence[int]) -> str:
        """The text to parse for the news of the engine."""
        for token_id in token_ids:
            piece = self._stream.feed(token_id)
            if token_id in self._special_ids:
                self._add_special(token_id, piece)
            elif piece:
                self._ahead.append((piece, None))
        return self._release(text)

    def _add_special(self, token_id: int, piece: str) -> None:
        spelling = self._tokenizer.token_bytes(token_id).decode(errors="replace")
        if not spelling or not piece.endswith(spelling):
            self._ahead.append((piece, None))
            return
        before = piece[: -len(spelling)]
        if before:
            self._ahead.append((before, None))
        shown = self._characters.get(token_id, "" if self._skip else spelling)
        self._ahead.append((spelling, shown))

    def _release(self, text: str) -> str:
        """Replace special tokens in as much of the text as the engine gave out."""
        if self._rest:
            text, self._rest = self._rest + text, ""
        pieces: list[str] = []
        at = done = 0
        for expected, replacement in self._ahead:
            end = at + len(expected)
            if end > len(text):
                if replacement is None:
                    self._ahead[done] = (expected[len(text) - at :], None)
                else:
                    self._rest, text = text[at:], text[:at]
                break
            pieces.append(text[at:end] if replacement is None else replacement)
            at = end
            done += 1
        del self._ahead[:done]
        pieces.append(text[at:])
        return "".join(pieces)
