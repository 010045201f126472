"""Prompts for load tests: random tokens, shared beginnings, a ShareGPT file, or one's own."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from octavo.bench.http_client import HTTPClient
from octavo.checkpoints.locate import find_model
from octavo.tokenizers.tokenizer import Tokenizer, load_tokenizer
from octavo.types.errors import ConfigError

# Of the texts whose tokens random prompts are drawn from; each is short enough for any model.
_NUM_TEXTS, _NUM_WORDS = 32, 64
_MIN_SHAREGPT_TOKENS = 4  # shorter prompts or answers measure nothing


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a load test: a text, or token ids."""

    prompt: str | list[int]
    prompt_len: int  # tokens
    output_len: int  # tokens


class Tokens(Protocol):
    """Text <-> token ids, as the server's model has them."""

    async def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""

    async def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""


class LocalTokens:
    """A tokenizer on this machine."""

    def __init__(self, model: str) -> None:
        self._tokenizer: Tokenizer = load_tokenizer(find_model(model, weights=False))

    async def encode(self, text: str) -> list[int]:
        """See Tokens."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    async def decode(self, ids: Sequence[int]) -> str:
        """See Tokens."""
        return self._tokenizer.decode(ids)


class ServerTokens:
    """The server's own /tokenize and /detokenize, so that no tokenizer is needed here."""

    def __init__(self, client: HTTPClient, model: str) -> None:
        self._client = client
        self._model = model

    async def encode(self, text: str) -> list[int]:
        """See Tokens."""
        answer = await self._call("/tokenize", prompt=text, add_special_tokens=False)
        ids: list[int] = answer["tokens"]
        return ids

    async def decode(self, ids: Sequence[int]) -> str:
        """See Tokens."""
        return str((await self._call("/detokenize", tokens=list(ids)))["prompt"])

    async def _call(self, path: str, **body: Any) -> dict[str, Any]:
        body["model"] = self._model
        try:
            answer = await self._client.call(path, json.dumps(body).encode())
        except OSError as error:
            raise ConfigError(
                f"the server can't tokenize ({error}); name a tokenizer with --tokenizer"
            ) from None
        found: dict[str, Any] = json.loads(answer)
        return found


@dataclass(frozen=True)
class Shape:
    """Lengths of random requests, in tokens; each is drawn within `spread` (0..1) around it."""

    input_len: int
    output_len: int
    prefix_len: int  # tokens that every prompt begins with
    spread: float


async def random_requests(
    count: int, shape: Shape, tokens: Tokens, *, as_text: bool, rng: random.Random
) -> list[Request]:
    """Prompts of random tokens. Texts may come out a few tokens longer or shorter."""
    pool = await _pool(tokens, rng)
    prefix = rng.choices(pool, k=shape.prefix_len)
    requests = []
    for _ in range(count):
        own = rng.choices(pool, k=_around(shape.input_len, shape.spread, rng))
        ids = prefix + own
        prompt = await tokens.decode(ids) if as_text else ids
        output_len = max(1, _around(shape.output_len, shape.spread, rng))
        requests.append(Request(prompt, len(ids), output_len))
    return requests


@dataclass(frozen=True)
class Repetition:
    """Prompts that share a few long beginnings; lengths in tokens."""

    prefix_len: int
    suffix_len: int
    num_prefixes: int
    output_len: int


async def prefix_requests(
    count: int, repetition: Repetition, tokens: Tokens, *, as_text: bool, rng: random.Random
) -> list[Request]:
    """Every prefix with about as many random endings, in random order."""
    pool = await _pool(tokens, rng)
    prefixes = [rng.choices(pool, k=repetition.prefix_len) for _ in range(repetition.num_prefixes)]
    requests = []
    for number in range(count):
        prefix = prefixes[number % len(prefixes)]
        ids = prefix + rng.choices(pool, k=repetition.suffix_len)
        prompt = await tokens.decode(ids) if as_text else ids
        requests.append(Request(prompt, len(ids), repetition.output_len))
    rng.shuffle(requests)
    return requests


async def sharegpt_requests(
    count: int, path: str, tokens: Tokens, *, output_len: int | None, rng: random.Random
) -> list[Request]:
    """First turns of a ShareGPT file, answers as long as the recorded ones."""
    turns = [entry.get("conversations") or entry.get("conversation") for entry in _read(path)]
    pairs = [(t[0]["value"], t[1]["value"]) for t in turns if t and len(t) >= 2]
    rng.shuffle(pairs)
    requests: list[Request] = []
    for prompt, answer in pairs:
        if len(requests) == count:
            break
        num_prompt = len(await tokens.encode(prompt))
        num_answer = output_len or len(await tokens.encode(answer))
        if min(num_prompt, num_answer) >= _MIN_SHAREGPT_TOKENS:
            requests.append(Request(prompt, num_prompt, num_answer))
    return _repeated(requests, count, path)


async def custom_requests(
    count: int, path: str, tokens: Tokens, *, output_len: int
) -> list[Request]:
    """Lines of JSON with `prompt` and, if they like, `output_tokens`, in the file's order."""
    requests = []
    for entry in _read(path)[:count]:
        length = int(entry.get("output_tokens") or output_len)
        ids = await tokens.encode(entry["prompt"])
        requests.append(Request(entry["prompt"], len(ids), length))
    return _repeated(requests, count, path)


def _read(path: str) -> list[Any]:
    try:
        text = Path(path).read_text(encoding="utf-8")
        if text.lstrip().startswith("["):
            entries: list[Any] = json.loads(text)
            return entries
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise ConfigError(f"dataset_path={path!r} can't be read: {error}") from None


def _repeated(requests: list[Request], count: int, path: str) -> list[Request]:
    if not requests:
        raise ConfigError(f"dataset_path={path!r} holds no usable prompt")
    return [requests[i % len(requests)] for i in range(count)]


async def _pool(tokens: Tokens, rng: random.Random) -> list[int]:
    """Tokens of ordinary text."""
    return sorted({id_ for _ in range(_NUM_TEXTS) for id_ in await tokens.encode(_words(rng))})


def _around(length: int, spread: float, rng: random.Random) -> int:
    return rng.randint(round(length * (1 - spread)), round(length * (1 + spread)))


def _words(rng: random.Random) -> str:
    """Pronounceable words: their tokens are ordinary ones in any vocabulary."""
    return " ".join(_word(rng) for _ in range(_NUM_WORDS))


def _word(rng: random.Random) -> str:
    syllables = rng.randint(1, 4)
    return "".join(rng.choice("bcdfghklmnprstvw") + rng.choice("aeiou") for _ in range(syllables))
