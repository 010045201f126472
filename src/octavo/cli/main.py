"""`octavo`: find the subcommand, run it, and turn errors into one line and an exit code."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence

import octavo
from octavo.config.convert import nearest
from octavo.types.errors import ConfigError, OctavoError
from octavo.utils import envs
from octavo.utils.registry import Registry

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

# Each command takes the words after its name and returns an exit code.
COMMANDS: Registry[Callable[[Sequence[str]], int]] = Registry(
    "command",
    {
        "serve": "octavo.cli.serve:main",
        "chat": "octavo.cli.chat:main",
        "complete": "octavo.cli.complete:main",
        "plan": "octavo.cli.plan:main",
        "compile": "octavo.cli.compile:main",
        "config": "octavo.cli.config:main",
        "bench": "octavo.cli.bench:main",
        "run-batch": "octavo.cli.run_batch:main",
        "cache": "octavo.cli.cache:main",
        "doctor": "octavo.cli.doctor:main",
        "completion": "octavo.cli.completion:main",
        "version": "octavo.cli.version:main",
    },
)

SUMMARIES = {
    "serve": "serve a model over HTTP (OpenAI-compatible) with a chat page at /",
    "chat": "chat with a model in the terminal, or answer what is piped in",
    "complete": "continue a text with a model, in the terminal or in a pipe",
    "compile": "compile a model's GPU kernels ahead of its first start, with or without a GPU",
    "plan": "print where the memory will go, without loading the model",
    "config": "print the resolved configuration, or which features go together",
    "bench": "measure latency, throughput, or a running server",
    "run-batch": "answer a file of requests without a server",
    "cache": "list or prune the compiled code kept on disk",
    "doctor": "check this machine and installation, and say how to mend what is wrong",
    "completion": "print a script that completes commands and flags in bash, zsh or fish",
    "version": "print the versions of octavo and what it runs on",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 2 for wrong usage, 1 for a failure."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return OK if words else USAGE
    name, rest = words[0], words[1:]
    if name in ("-V", "--version"):
        name = "version"
    if name not in COMMANDS:
        guess = nearest(name, COMMANDS.names()) or "; octavo --help lists them"
        return _fail("octavo", f"unknown command {name!r}{guess}", USAGE)
    return _run(name, rest)


def usage() -> str:
    """The text of `octavo --help`."""
    width = max(map(len, SUMMARIES))
    commands = [f"  {name:<{width}}  {summary}" for name, summary in SUMMARIES.items()]
    return "\n".join(
        [
            f"octavo {octavo.__version__}: serve large language models",
            "",
            "usage: octavo COMMAND [ARGUMENTS]",
            "",
            *commands,
            "",
            "octavo COMMAND --help tells more. `octavo serve` alone serves a small model.",
        ]
    )


def _run(name: str, words: Sequence[str]) -> int:
    program = f"octavo {name}"
    try:
        return COMMANDS.get(name)(words)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`octavo config | head`).
        return FAILED
    except Exception as error:
        if envs.logging_level() == "DEBUG":
            traceback.print_exc()
        if isinstance(error, ConfigError):
            return _fail(program, str(error), USAGE)
        if isinstance(error, OctavoError):
            return _fail(program, str(error), FAILED)
        hint = "OCTAVO_LOGGING_LEVEL=DEBUG shows where"
        return _fail(program, f"{type(error).__name__}: {error} ({hint})", FAILED)


def _fail(program: str, message: str, code: int) -> int:
    print(f"{program}: error: {' '.join(message.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
