"""What `octavo chat` and `octavo complete` share: their flags, and the server they talk to."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, TypeVar

from octavo.bench.server_process import ServerProcess, octavo_server
from octavo.cli.server_client import NoServerError, ServerClient
from octavo.config.convert import convert
from octavo.config.engine_args import EngineArgs
from octavo.config.engine_options import engine_options
from octavo.config.flags import FlagParser, add_flags
from octavo.config.options import option, options_of
from octavo.config.sources import add_model_and_config, parse_options
from octavo.types.errors import ConfigError, OctavoError
from octavo.utils import envs

DEFAULT_URL = "http://localhost:8000"

_SERVER = (
    "By default it talks to the server at http://localhost:8000, or, where none answers, starts "
    "one with the small model for as long as it runs. --url names another server; MODEL and the "
    "flags of the engine start one with them."
)


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Whom to ask, and how to sample."""

    url: str | None = option(None, "Address of a running server, with or without /v1.")
    model_name: str | None = option(
        None, "Which of the server's models to use (default: its first)."
    )
    api_key: str | None = option(None, "The server's key; OCTAVO_API_KEY is read, too.")
    quick: str | None = option(
        None, "Ask this once, print the answer and end; with text on stdin, about that.", short="-q"
    )
    temperature: float | None = option(None, "As in a request (default: the model's).", low=0)
    top_p: float | None = option(
        None, "As in a request (default: the model's).", low=0, high=1, low_open=True
    )
    max_tokens: int | None = option(None, "Most tokens of an answer.", low=1)

    def sampling(self) -> dict[str, Any]:
        """The fields of a request that were given."""
        names = ("temperature", "top_p", "max_tokens")
        return {n: getattr(self, n) for n in names if getattr(self, n) is not None}


OptionsT = TypeVar("OptionsT", bound=ClientOptions)


def client_parser(kind: type[ClientOptions], prog: str, description: str) -> FlagParser:
    """A parser with [MODEL], the flags of `kind` and the engine's."""
    own = options_of(kind, prog.rpartition(" ")[2])
    # One-letter flags are the client's first: -q is --quick here, not --quantization.
    taken = {known.short for known in own.values()}
    engine = {
        name: replace(known, short=None) if known.short in taken else known
        for name, known in engine_options().items()
    }
    parser = FlagParser(prog, f"{description} {_SERVER}")
    add_model_and_config(parser)
    add_flags(parser, own, sections=False)
    add_flags(parser, engine, sections=True)
    return parser


def parse_client(
    parser: FlagParser, argv: Sequence[str], kind: type[OptionsT]
) -> tuple[OptionsT, dict[str, Any]]:
    """(the client's options, the engine's that were given). Raises ConfigError."""
    own = options_of(kind, "client")
    values, _ = parse_options(parser, argv, own | engine_options())
    options = kind(**{name: convert(own[name], v) for name, v in values.items() if name in own})
    return options, {name: value for name, value in values.items() if name not in own}


@contextmanager
def reach(options: ClientOptions, engine: Mapping[str, Any]) -> Iterator[tuple[ServerClient, str]]:
    """(a server to talk to, the name of a model of its). Ends what it has started.

    Raises ConfigError for flags that don't go together, OctavoError where no server is to be had.
    """
    name = options.model_name
    if options.url is not None:
        extra = sorted(set(engine) - {"model"})
        if extra:
            flag = "--" + extra[0].replace("_", "-")
            raise ConfigError(f"{flag} is for a server that is started here; leave it or --url out")
        client = ServerClient(options.url, _key(options))
        yield client, _choose(client, name or engine.get("model"))
        return
    if not engine:
        client = ServerClient(DEFAULT_URL, _key(options))
        try:
            chosen = _choose(client, name)
        except NoServerError:
            pass
        else:
            yield client, chosen
            return
    EngineArgs(**engine)  # wrong values are told before anything starts
    print(f"starting a server with {engine.get('model') or 'the small model'}", file=sys.stderr)
    with _unwinding(), ServerProcess(octavo_server(engine), follows_terminal=False) as server:
        client = ServerClient(server.url, _key(options))
        yield client, _choose(client, name)


@contextmanager
def _unwinding() -> Iterator[None]:
    """A closed terminal or SIGTERM unwinds this program, so that it ends the server, too."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _key(options: ClientOptions) -> str | None:
    return options.api_key or next(iter(envs.api_keys()), None)


def _choose(client: ServerClient, wanted: str | None) -> str:
    names = client.models()
    if not names:
        raise OctavoError(f"the server at {client.url} has no model")
    if wanted is not None and wanted not in names:
        raise OctavoError(f"the server at {client.url} has no model {wanted!r}; {_list(names)}")
    return wanted or names[0]


def _list(names: Sequence[str]) -> str:
    return f"there {'is' if len(names) == 1 else 'are'} {', '.join(names)}"
