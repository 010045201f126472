"""ServerClient: what `octavo chat` and `octavo complete` ask of a server, one stream at a time."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from octavo.types.errors import ConfigError, OctavoError

_LOOK_SECONDS = 10.0  # for a server to say which models it has
_ERROR_CHARS = 500  # of an answer that is no JSON, shown


class NoServerError(OctavoError):
    """Nothing listens at the address."""


class Piece(NamedTuple):
    """Some text of an answer."""

    kind: Literal["answer", "reasoning"]
    text: str


@dataclass(slots=True)
class Answer:
    """What has come of an answer so far; times in seconds since it was asked for."""

    text: str = ""
    finish_reason: str | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    first_piece: float | None = None
    last_piece: float = 0.0

    def figures(self) -> str:
        """Tokens and speed in one line; "" before the server has told them."""
        if not self.output_tokens or self.first_piece is None:
            return ""
        line = (
            f"{self.prompt_tokens} tokens in, {self.output_tokens} out; "
            f"first after {self.first_piece:.2f} s"
        )
        spent = self.last_piece - self.first_piece
        if self.output_tokens > 1 and spent > 0:
            line += f", then {(self.output_tokens - 1) / spent:.1f} tokens/s"
        return line


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None  # the older name of the same


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class ServerClient:
    """A server with OpenAI's API at `url`, which may end in /v1 or not.

    Proxies of the environment are used, but not for this machine.
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        """Raises ConfigError for an address that is none."""
        if "://" not in url:
            url = f"http://{url}"
        parts = urlsplit(url)
        try:
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ConfigError(f"url={url!r} is no address of a server; write http://HOST:PORT")
        self.url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        local = parts.hostname in ("localhost", "127.0.0.1", "::1", "0.0.0.0")
        proxies = [urllib.request.ProxyHandler({})] if local else []
        self._open = urllib.request.build_opener(*proxies).open

    def models(self) -> list[str]:
        """The names that requests may use.

        Raises NoServerError if nothing listens there, OctavoError for anything else that is wrong.
        """
        with self._send("/v1/models", None, _LOOK_SECONDS) as reply:
            try:
                return [model.id for model in msgspec.json.decode(reply.read(), type=_Models).data]
            except (msgspec.MsgspecError, http.client.HTTPException) as error:
                raise OctavoError(f"{self.url} is no such server: {error}") from None

    def stream(
        self, path: str, body: Mapping[str, Any], answer: Answer
    ) -> Generator[Piece, None, None]:
        """The pieces of an answer as they come; what has come is in `answer`, too.

        Closing the generator closes the connection, at which the server stops. Raises OctavoError.
        """
        begin = time.monotonic()
        content = {**body, "stream": True, "stream_options": {"include_usage": True}}
        with self._send(path, json.dumps(content).encode(), None) as reply:
            complete = False
            for line in _lines(reply):
                if not line.startswith(b"data:"):
                    continue
                data = line.removeprefix(b"data:").strip()
                if data == b"[DONE]":
                    complete = True
                    break
                for piece in _pieces(_event(data), answer):
                    answer.last_piece = time.monotonic() - begin
                    if answer.first_piece is None:
                        answer.first_piece = answer.last_piece
                    yield piece
        if not complete:
            raise OctavoError("the server closed the connection in the middle of the answer")

    def _send(self, path: str, body: bytes | None, timeout: float | None) -> Any:
        request = urllib.request.Request(self.url + path, data=body, headers=self._headers)
        try:
            return self._open(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            raise OctavoError(_refusal(error)) from None
        except urllib.error.URLError as error:
            kind = (
                NoServerError if isinstance(error.reason, ConnectionRefusedError) else OctavoError
            )
            raise kind(f"no server answers at {self.url} ({error.reason})") from None
        except (OSError, http.client.HTTPException) as error:
            raise OctavoError(f"no server answers at {self.url} ({error})") from None


def _lines(reply: Any) -> Iterator[bytes]:
    try:
        yield from reply
    except (OSError, http.client.HTTPException) as error:
        raise OctavoError(f"the connection to the server broke: {error}") from None


def _event(data: bytes) -> _Event:
    try:
        return msgspec.json.decode(data, type=_Event)
    except msgspec.MsgspecError as error:
        raise OctavoError(f"the server sent an event that can't be read: {error}") from None


def _pieces(event: _Event, answer: Answer) -> Iterator[Piece]:
    """The event's texts, in order; its other news go into `answer`."""
    if event.error is not None:
        raise OctavoError(_error_text(event.error))
    if event.usage is not None:
        answer.prompt_tokens = event.usage.prompt_tokens
        answer.output_tokens = event.usage.completion_tokens
    for choice in event.choices:
        delta = choice.delta or _Delta()
        if reasoning := delta.reasoning or delta.reasoning_content:
            yield Piece("reasoning", reasoning)
        if text := choice.text or delta.content:
            answer.text += text
            yield Piece("answer", text)
        answer.finish_reason = choice.finish_reason or answer.finish_reason


def _refusal(error: urllib.error.HTTPError) -> str:
    with error:
        content = error.read()
    try:
        text = _error_text(json.loads(content)["error"])
    except (ValueError, LookupError, TypeError):
        text = content[:_ERROR_CHARS].decode(errors="replace").strip() or error.reason
    if error.code == 401:
        text += " (--api-key or OCTAVO_API_KEY gives one)"
    return f"the server says {error.code}: {text}"


def _error_text(error: Any) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)
