"""`octavo config [MODEL]`: the configuration that the flags lead to."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

import yaml

from octavo.cli.arguments import engine_parser, parse_engine
from octavo.config import compat
from octavo.config.flags import FlagParser


def parser() -> FlagParser:
    """The flags of the command."""
    made = engine_parser(
        "octavo config",
        "Print the resolved configuration: every value, with notes on those chosen for you. "
        "Takes the flags of `octavo serve`.",
        server=True,
    )
    made.add_argument("--format", choices=("json", "yaml"), default="json")
    made.add_argument(
        "--usage",
        choices=("server", "llm"),
        default="server",
        help="Whose defaults: of the server or of the class LLM (default: server)",
    )
    made.add_argument(
        "--compat",
        nargs="?",
        choices=("text", "markdown"),
        const="text",
        default=argparse.SUPPRESS,
        help="Print instead which features can't be used together, and why.",
    )
    return made


def main(argv: Sequence[str]) -> int:
    """Print the resolved configuration, or the table of features that go together."""
    engine_args, server_args, others = parse_engine(parser(), argv, server=True)
    form = others.get("compat")
    if form is not None:
        print(compat.matrix_markdown() if form == "markdown" else compat.matrix_text())
        return 0
    config = engine_args.create_engine_config(usage=others["usage"], weights=False)
    values = config.dump() | {"server": server_args.dump(), "hash": config.compute_hash()}
    if others["format"] == "yaml":
        print(yaml.safe_dump(values, sort_keys=False, width=100), end="")
    else:
        print(json.dumps(values, indent=2))
    return 0
