"""`octavo serve [MODEL]`: the HTTP server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from octavo.cli.arguments import engine_parser, parse_engine
from octavo.config.engine_args import EngineArgs
from octavo.config.flags import FlagParser
from octavo.config.server import ServerArgs
from octavo.utils.registry import Registry

# Reached by name so that --help and wrong flags answer without loading the server.
SERVERS: Registry[Callable[[EngineArgs, ServerArgs], int | None]] = Registry(
    "server", {"openai": "octavo.entrypoints.openai.serve:run_server"}
)


def parser() -> FlagParser:
    """The flags of the command."""
    return engine_parser(
        "octavo serve",
        "Serve a model over HTTP with OpenAI's API, and a chat page at /.",
        server=True,
    )


def main(argv: Sequence[str]) -> int:
    """Serve until stopped."""
    engine_args, server_args, _ = parse_engine(parser(), argv, server=True)
    return SERVERS.get("openai")(engine_args, server_args) or 0
