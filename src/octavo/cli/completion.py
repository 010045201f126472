"""`octavo completion SHELL`: a script that completes commands, flags and their values by Tab."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

import shtab

from octavo.cli import bench
from octavo.cli.main import SUMMARIES
from octavo.config.convert import nearest
from octavo.config.engine_options import engine_options
from octavo.config.flags import FlagParser, add_flags
from octavo.config.options import Option, options_of
from octavo.config.server import server_options
from octavo.config.sources import add_model_and_config
from octavo.types.errors import ConfigError
from octavo.utils.registry import Registry

PARSERS: Registry[Callable[[], FlagParser]] = Registry(
    "parser",
    {
        "serve": "octavo.cli.serve:parser",
        "chat": "octavo.cli.chat:parser",
        "complete": "octavo.cli.complete:parser",
        "plan": "octavo.cli.plan:parser",
        "compile": "octavo.cli.compile:parser",
        "config": "octavo.cli.config:parser",
        "run-batch": "octavo.cli.run_batch:parser",
        "cache": "octavo.cli.cache:parser",
        "doctor": "octavo.cli.doctor:parser",
        "completion": "octavo.cli.completion:parser",
        "version": "octavo.cli.version:parser",
    },
)
BENCH_OPTIONS: Registry[type] = Registry(
    "options of a benchmark", {name: path for name, (path, _) in bench.OPTIONS.items()}
)

# Where each shell looks for such a script, or what makes it read one.
_INSTALL = {
    "bash": "mkdir -p ~/.local/share/bash-completion/completions && octavo completion bash > "
    "~/.local/share/bash-completion/completions/octavo",
    "zsh": "octavo completion zsh > ~/.zfunc/_octavo, with `fpath+=~/.zfunc` before `compinit` in "
    "~/.zshrc",
    "fish": "octavo completion fish > ~/.config/fish/completions/octavo.fish",
}
# Words at the end of a flag's name that say what it takes.
_FILES = ("file", "config", "template", "plugin", "path", "keyfile", "certfile", "certs", "json")
_PLACEHOLDERS = ("N", "X", "TEXT", "JSON")  # of config.flags
_FOLDERS = ("dir", "folder", "output")


def parser() -> FlagParser:
    """The flags of the command."""
    steps = "; ".join(f"{shell}: {step}" for shell, step in _INSTALL.items())
    made = FlagParser(
        "octavo completion",
        f"Print a script for the shell. To install it: {steps}. Then open a new shell.",
    )
    made.usage = "%(prog)s {bash,zsh,fish}"
    made.add_argument("shell", nargs="?", metavar="{bash,zsh,fish}")
    return made


def main(argv: Sequence[str]) -> int:
    """Print the script."""
    shell = parser().parse(argv)["shell"]
    if shell not in _INSTALL:
        guess = nearest(shell or "", _INSTALL) or f"; there are {', '.join(_INSTALL)}"
        raise ConfigError(f"shell={shell!r} has no script{guess}")
    print(shtab.complete(whole_parser(), shell))
    return 0


def whole_parser() -> argparse.ArgumentParser:
    """Every command and benchmark under one parser, which is for completion only."""
    root = argparse.ArgumentParser("octavo")
    root.add_argument("-V", "--version", action="store_true", help="versions")
    commands = root.add_subparsers()
    for name in sorted([*PARSERS, "bench"]):
        if name == "bench":
            group = commands.add_parser(name, help=SUMMARIES[name])
            benchmarks = group.add_subparsers()
            for each, text in bench.SUMMARIES.items():
                _add(benchmarks, each, text, bench_parser(each))
        else:
            _add(commands, name, SUMMARIES[name], PARSERS.get(name)())
    return root


def bench_parser(name: str) -> FlagParser:
    """The flags of a benchmark."""
    own = options_of(BENCH_OPTIONS.get(name), "benchmark")
    others = bench.OPTIONS[name][1]
    made = FlagParser(f"octavo bench {name}", bench.SUMMARIES[name])
    add_flags(made, own, sections=False)
    if others != "none":
        add_model_and_config(made)
        add_flags(made, engine_options(), sections=True)
    if others == "engine and server":
        add_flags(made, server_options(), sections=False)
    return made


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    made: FlagParser,
) -> None:
    added = commands.add_parser(name, help=summary, parents=[made], add_help=False)
    known = engine_options() | server_options()
    for action in added._actions:
        _describe(action, known)


def _describe(action: argparse.Action, known: Mapping[str, Option]) -> None:
    """Say which words an argument takes: choices, a file or a folder."""
    last = action.dest.rpartition("_")[2]
    if action.metavar and str(action.metavar).startswith("{"):
        words = str(action.metavar).strip("{}").split(",")
        action.choices = [word for word in words if word not in _PLACEHOLDERS]
    elif action.dest in known and known[action.dest].base == "bool":
        return
    elif action.dest == "positional_model" or last in _FILES:
        action.complete = shtab.FILE  # type: ignore[attr-defined]
    elif last in _FOLDERS:
        action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
