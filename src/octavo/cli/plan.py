"""`octavo plan [MODEL]`: where the memory will go, without loading the model."""

from __future__ import annotations

import json
from collections.abc import Sequence

from octavo.cli.arguments import engine_parser, parse_engine
from octavo.config.flags import FlagParser
from octavo.engine.plan import make_plan
from octavo.types.errors import CheckpointError


def parser() -> FlagParser:
    """The flags of the command."""
    made = engine_parser(
        "octavo plan",
        "Print where the memory will go: weights, activations, KV cache, headroom. Reads the "
        "model's configuration and the headers of its files, no weights.",
        server=False,
    )
    made.add_argument("--format", choices=("text", "json"), default="text")
    made.add_argument(
        "--usage",
        choices=("server", "llm"),
        default="server",
        help="Whose defaults: of the server or of the class LLM (default: server)",
    )
    return made


def main(argv: Sequence[str]) -> int:
    """Print the byte table."""
    engine_args, _, others = parse_engine(parser(), argv, server=False)
    config = engine_args.create_engine_config(usage=others["usage"], weights=False)
    headers = None
    if config.load.load_format != "dummy":
        try:
            headers = engine_args.find_model(weights=False).tensor_headers()
        except CheckpointError:
            # The weights are not here (yet): the architecture says how large they are.
            headers = None
    plan = make_plan(config, headers)
    print(json.dumps(plan.dump(), indent=2) if others["format"] == "json" else plan.table())
    return 0
