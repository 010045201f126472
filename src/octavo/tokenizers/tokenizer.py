"""Tokenizer: encode, decode and the facts about special tokens, over a tokenizer.json."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tokenizers

from octavo.checkpoints.model_files import ModelFiles
from octavo.tokenizers.pieces import decoder_kind, token_to_bytes
from octavo.types.errors import CheckpointError, RequestError

_SHORT_TEXT = 2048  # characters
_MAX_IDS = 1 << 32  # of the `tokenizers` package
_TOKEN_OPTIONS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_NAMED_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token")


class Tokenizer:
    """A model's tokenizer. Immutable after construction, and safe to share between threads.

    `config` is the content of tokenizer_config.json; `backend` the tokenizers.Tokenizer, which
    callers must not change. `chat_templates` are the model's templates by name.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        config: dict[str, Any] | None = None,
        chat_templates: dict[str, str] | None = None,
    ) -> None:
        config = config or {}
        self.backend = backend
        self.chat_templates = chat_templates or {}
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = False
        self.special_tokens = _named_tokens(config)
        _add_declared_tokens(backend, config)
        _mark_special(backend, [*self.special_tokens.values(), *_other_special_tokens(config)])
        added = backend.get_added_tokens_decoder()
        self.all_special_ids = frozenset(id_ for id_, token in added.items() if token.special)
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        self.bos_token = self.special_tokens.get("bos_token")
        self.eos_token = self.special_tokens.get("eos_token")
        self.bos_token_id = self._token_id(self.bos_token)
        self.eos_token_id = self._token_id(self.eos_token)
        self.pad_token_id = self._token_id(self.special_tokens.get("pad_token"))
        self.decoder_kind, self.strips_leading_space = decoder_kind(backend)
        self._prefix, self._suffix = self._affixes(config)
        self._bytes: dict[int, bytes] = {}
        # Of tokens that hold no parts of characters, as text streams meet them.
        self.whole_texts: dict[int, str] = {}

    @property
    def chat_template(self) -> str | None:
        """The model's usual chat template, or None."""
        return self.chat_templates.get("default")

    @functools.cached_property
    def max_token_id(self) -> int:
        """The largest id that stands for a token."""
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1)

    @functools.cached_property
    def byte_token_ids(self) -> frozenset[int]:
        """The ids of a byte-fallback vocabulary's byte tokens, <0x00> to <0xFF>."""
        names = [f"<0x{byte:{case}}>" for byte in range(256) for case in ("02X", "02x")]
        ids = (self.backend.token_to_id(name) for name in names)
        return frozenset(token_id for token_id in ids if token_id is not None)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`; text that spells a special token becomes that token.

        With `add_special_tokens`, the begin and end tokens the model was trained with. The work
        is linear in the length, which the caller bounds. Raises RequestError for a text that is
        not valid Unicode (a lone surrogate).
        """
        try:
            ids = self._encode(text)
        except (UnicodeEncodeError, TypeError) as error:
            raise RequestError(
                "the text is not valid Unicode (it holds a lone surrogate); send well-formed text"
            ) from error
        return [*self._prefix, *ids, *self._suffix] if add_special_tokens else ids

    def encode_pair(
        self, first: str, second: str, max_tokens: int | None = None
    ) -> tuple[list[int], int | None]:
        """(ids of both texts with their special tokens, where those of the second begin).

        The place is None where the model is not told the texts apart. With `max_tokens` the longer
        text loses its end, then both do alike. Raises RequestError for invalid Unicode.
        """
        backend = self.backend
        try:
            parts = [backend.encode(text, add_special_tokens=False) for text in (first, second)]
        except (UnicodeEncodeError, TypeError) as error:
            raise RequestError(
                "the text is not valid Unicode (it holds a lone surrogate); send well-formed text"
            ) from error
        if max_tokens is not None:
            room = max(max_tokens - backend.num_special_tokens_to_add(True), 0)
            shares = _shares(len(parts[0]), len(parts[1]), room)
            for part, length in zip(parts, shares, strict=True):
                part.truncate(length)
        both = backend.post_process(parts[0], parts[1], add_special_tokens=True)
        kinds = both.type_ids
        return list(both.ids), kinds.index(1) if 1 in kinds else None

    @property
    def affixes(self) -> tuple[list[int], list[int]]:
        """The special tokens that `encode` puts before and behind a text."""
        return list(self._prefix), list(self._suffix)

    def _encode(self, text: str) -> list[int]:
        # The batch call lets other threads run meanwhile, the single one is quicker to begin.
        if len(text) <= _SHORT_TEXT:
            ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
        else:
            ids = self.backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of token ids; ids that stand for no token are left out."""
        known = [token_id for token_id in ids if 0 <= token_id < _MAX_IDS]
        text: str = self.backend.decode(known, skip_special_tokens=skip_special_tokens)
        return text

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        """The tokens as the vocabulary spells them (byte-level letters, "▁", ...)."""
        return [self._token(token_id) for token_id in ids]

    def convert_tokens_to_ids(self, tokens: Sequence[str]) -> list[int | None]:
        """The ids of tokens spelt as in the vocabulary; None for a token that is not in it."""
        return [self.backend.token_to_id(token) for token in tokens]

    def token_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes a token adds to the text: b"" for an id that stands for no token.

        Exact for byte-level and byte-fallback vocabularies, where a token may hold a part of a
        character; special tokens give their spelling.
        """
        found = self._bytes.get(token_id)
        if found is None:
            token = self._token(token_id)
            found = b"" if token is None else token_to_bytes(token, self.decoder_kind)
            self._bytes[token_id] = found
        return found

    def _token(self, token_id: int) -> str | None:
        token: str | None = self.backend.id_to_token(token_id) if 0 <= token_id < _MAX_IDS else None
        return token

    def _token_id(self, token: str | None) -> int | None:
        if token is None:
            return None
        token_id: int | None = self.backend.token_to_id(token)
        return token_id

    def _affixes(self, config: dict[str, Any]) -> tuple[list[int], list[int]]:
        """The ids that encoding puts around a text.

        tokenizer.json says so in its post-processor; explicit add_bos_token and add_eos_token
        flags of tokenizer_config.json win, as in transformers.
        """
        probe = self.backend.encode("a", add_special_tokens=True)
        inside = [at for at, special in enumerate(probe.special_tokens_mask) if not special]
        begin, end = (inside[0], inside[-1] + 1) if inside else (len(probe.ids),) * 2
        prefix, suffix = probe.ids[:begin], probe.ids[end:]
        for flag, affix, token_id, at in (
            ("add_bos_token", prefix, self.bos_token_id, 0),
            ("add_eos_token", suffix, self.eos_token_id, len(suffix)),
        ):
            wanted = config.get(flag)
            if wanted is None or token_id is None:
                continue
            if wanted and token_id not in affix:
                affix.insert(at, token_id)
            elif not wanted and token_id in affix:
                affix.remove(token_id)
        return prefix, suffix


def load_tokenizer(files: ModelFiles) -> Tokenizer:
    """The tokenizer of a model; CheckpointError if its files hold none or a broken one."""
    text = files.tokenizer_json()
    try:
        backend = tokenizers.Tokenizer.from_str(text)
    # The package raises plain Exception for every malformed part.
    except Exception as error:
        raise CheckpointError(f"the tokenizer of {files.path} can't be read: {error}") from error
    return Tokenizer(backend, files.tokenizer_config(), files.chat_templates())


def _shares(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of each of two texts are kept so that both fit in `room`."""
    if first + second <= room:
        return first, second
    shorter = min(first, second, room // 2)
    rest = room - shorter
    return (shorter, rest) if first <= second else (rest, shorter)


def _named_tokens(config: dict[str, Any]) -> dict[str, str]:
    """bos_token, eos_token, ... of a tokenizer_config.json."""
    named = {name: _text_of(config.get(name)) for name in _NAMED_TOKENS}
    return {name: token for name, token in named.items() if token is not None}


def _other_special_tokens(config: dict[str, Any]) -> list[str]:
    found = []
    for key in ("additional_special_tokens", "extra_special_tokens"):
        value = config.get(key) or []
        texts = map(_text_of, value.values() if isinstance(value, dict) else value)
        found += [text for text in texts if text is not None]
    return found


def _text_of(token: Any) -> str | None:
    """A token of a JSON file: its text, or an object with the text as "content"."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _add_declared_tokens(backend: tokenizers.Tokenizer, config: dict[str, Any]) -> None:
    """Tokens that tokenizer_config.json declares and tokenizer.json lacks, or has as ordinary."""
    declared = config.get("added_tokens_decoder") or {}
    known = {token.content: token.special for token in backend.get_added_tokens_decoder().values()}
    for key, entry in sorted(declared.items(), key=lambda item: (len(item[0]), item[0])):
        text = _text_of(entry)
        if text is None or not key.isdecimal():
            raise CheckpointError(
                f"tokenizer_config.json: added_tokens_decoder has the entry {key!r}: {entry!r}"
            )
        options = {name: value for name, value in entry.items() if name in _TOKEN_OPTIONS}
        token = tokenizers.AddedToken(text, **({"normalized": False} | options))
        if text in known and known[text] >= token.special:
            continue
        backend.add_tokens([token])
        if backend.token_to_id(text) != int(key):
            raise CheckpointError(
                f"tokenizer_config.json gives {text!r} the id {key}, tokenizer.json gives it "
                f"{backend.token_to_id(text)}; the files are of two models"
            )


def _mark_special(backend: tokenizers.Tokenizer, tokens: list[str]) -> None:
    """Make tokens of the vocabulary special; a text that is no token stays none."""
    added = backend.get_added_tokens_decoder().values()
    special = {token.content for token in added if token.special}
    missing = [token for token in tokens if token not in special]
    known = [token for token in missing if backend.token_to_id(token) is not None]
    if known:
        backend.add_special_tokens(known)
