"""`octavo complete [MODEL]`: text that goes on from a prompt, in the terminal or in a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from octavo.cli.chat import once
from octavo.cli.client_options import ClientOptions, client_parser, parse_client, reach
from octavo.cli.console import Console
from octavo.cli.server_client import Answer, ServerClient
from octavo.config.flags import FlagParser
from octavo.config.options import option
from octavo.types.errors import OctavoError
from octavo.utils import envs

PATH = "/v1/completions"


@dataclass(frozen=True, kw_only=True)
class CompleteOptions(ClientOptions):
    """How far a text goes on."""

    max_tokens: int | None = option(256, "Most tokens of a completion.", low=1)
    echo: bool = option(False, "Print the prompt before what follows it.")


def parser() -> FlagParser:
    """The flags of the command."""
    return client_parser(
        CompleteOptions,
        "octavo complete",
        "Continue texts, without a chat template. Each text typed is continued by itself; Ctrl-C "
        "stops that, Ctrl-D ends. What is piped in is one text.",
    )


def main(argv: Sequence[str]) -> int:
    """Continue what is typed, or what was piped in."""
    options, engine = parse_client(parser(), argv, CompleteOptions)
    console = Console()
    prompt = once(options, console)
    with reach(options, engine) as (client, model):
        body = {"model": model, **options.sampling()}
        if prompt is not None:
            _complete(client, body, prompt, options.echo, console)
        else:
            console.note(f"{model} at {client.url}; Ctrl-D to leave")
            with console.editing(envs.cache_root() / "complete_history", ()):
                _loop(client, body, options.echo, console)
    return 0


def _loop(client: ServerClient, body: dict[str, Any], echo: bool, console: Console) -> None:
    while True:
        try:
            prompt = console.read(">>> ")
        except KeyboardInterrupt:
            console.note("\n(Ctrl-D leaves)")
            continue
        if prompt is None:
            console.note("")
            return
        if not prompt:
            continue
        try:
            _complete(client, body, prompt, echo, console)
        except OctavoError as error:
            console.note(f"error: {error}")


def _complete(
    client: ServerClient, body: dict[str, Any], prompt: str, echo: bool, console: Console
) -> None:
    """Write what follows the prompt; on a terminal, Ctrl-C ends it. Raises OctavoError."""
    if echo:
        console.write(prompt)
    try:
        with closing(client.stream(PATH, {**body, "prompt": prompt}, Answer())) as pieces:
            for piece in pieces:
                console.write(piece.text)
    except KeyboardInterrupt:
        if not console.interactive:
            raise
    finally:
        console.end()
