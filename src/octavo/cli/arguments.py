"""The flags that several subcommands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.config.engine_args import EngineArgs
from octavo.config.engine_options import engine_options
from octavo.config.flags import FlagParser, add_flags
from octavo.config.server import ServerArgs, server_options
from octavo.config.sources import add_model_and_config, parse_options


def engine_parser(prog: str, description: str, *, server: bool) -> FlagParser:
    """A parser with [MODEL], --config, the engine's flags and, if asked, the server's."""
    parser = FlagParser(prog, description)
    add_model_and_config(parser)
    add_flags(parser, engine_options(), sections=True)
    if server:
        add_flags(parser, server_options(), sections=False)
    return parser


def parse_engine(
    parser: FlagParser, argv: Sequence[str], *, server: bool
) -> tuple[EngineArgs, ServerArgs, dict[str, Any]]:
    """(engine's arguments, server's, the values of the parser's other flags).

    Raises ConfigError for anything unknown or wrong.
    """
    engine = engine_options()
    options = engine | (server_options() if server else {})
    values, others = parse_options(parser, argv, options)
    engine_args = EngineArgs(**{name: v for name, v in values.items() if name in engine})
    server_args = ServerArgs(**{name: v for name, v in values.items() if name not in engine})
    return engine_args, server_args, others
