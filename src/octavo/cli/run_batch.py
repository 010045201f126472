"""`octavo run-batch`: the requests of a file, answered into another one, without a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from octavo.cli.arguments import engine_parser, parse_engine
from octavo.config.engine_args import EngineArgs
from octavo.config.flags import FlagParser
from octavo.config.server import ServerArgs
from octavo.types.errors import ConfigError
from octavo.utils.registry import Registry

# Reached by name so that --help and wrong flags answer without loading the engine.
RUNNERS: Registry[Callable[[EngineArgs, ServerArgs, Path, Path], int]] = Registry(
    "batch runner", {"openai": "octavo.entrypoints.openai.batch:run_batch"}
)


def parser() -> FlagParser:
    """The flags of the command."""
    made = engine_parser(
        "octavo run-batch",
        "Answer a file of requests (OpenAI's batch format, one JSON object a line).",
        server=True,
    )
    made.add_argument("-i", "--input-file", metavar="FILE", help="Requests, one a line.")
    made.add_argument("-o", "--output-file", metavar="FILE", help="Answers, as they come.")
    return made


def main(argv: Sequence[str]) -> int:
    """Answer every line of the input; 1 if some of them failed."""
    engine_args, server_args, others = parse_engine(parser(), argv, server=True)
    files = []
    for name in ("input_file", "output_file"):
        if not others.get(name):
            raise ConfigError(f"--{name.replace('_', '-')} is missing; give a file")
        files.append(Path(others[name]))
    return RUNNERS.get("openai")(engine_args, server_args, *files)
