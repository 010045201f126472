"""Engine: one side of a comparison, a process that runs batches in a Python of its own."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.types.errors import ConfigError, OctavoError

_WORKER = Path(__file__).with_name("engine_worker.py")
_END_SECONDS = 60.0  # for an engine to end by itself
# Where engines keep what they compiled: pointed elsewhere, a start is a cold one.
CACHE_VARIABLES = (
    "OCTAVO_CACHE_ROOT",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "VLLM_CACHE_ROOT",
)


@dataclass(frozen=True)
class EngineCommand:
    """How to start an engine's worker."""

    python: str
    engine: str  # module with LLM and SamplingParams
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)  # of its LLM
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The engine's name in results."""
        return self.engine

    @classmethod
    def octavo(cls, values: Mapping[str, Any]) -> EngineCommand:
        """This octavo, with options as they came from its flags."""
        options = dict(values)
        return cls(sys.executable, "octavo", str(options.pop("model")), options)

    @classmethod
    def parse(cls, text: str) -> EngineCommand:
        """[VARIABLE=VALUE ...] PYTHON ENGINE MODEL [option=value ...]. Raises ConfigError."""
        words = shlex.split(text)
        environment = {}
        while words and "=" in words[0]:
            name, _, environment[name] = words.pop(0).partition("=")
        if len(words) < 3 or not all("=" in word for word in words[3:]):
            raise ConfigError(
                f"engine_command={text!r}: write [VARIABLE=VALUE ...] PYTHON ENGINE MODEL "
                "[option=value ...]"
            )
        python, engine, model, *settings = words
        pairs = (setting.partition("=") for setting in settings)
        options = {name: _value(value) for name, _, value in pairs}
        return cls(python, engine, model, options, environment)


class Engine:
    """A started engine. `start_seconds`: from the process's begin until it took requests."""

    def __init__(self, command: EngineCommand, cache: Path | None = None) -> None:
        """With `cache`, what the engine compiles is kept there and not found elsewhere."""
        self.command = command
        caches = {} if cache is None else {name: str(cache / name) for name in CACHE_VARIABLES}
        began = time.perf_counter()
        # By `env`, so that nothing else of the engine's environment is changed by octavo.
        settings = [f"{name}={value}" for name, value in (command.environment | caches).items()]
        self._process = subprocess.Popen(
            ["env", *settings, command.python, str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        start = {"engine": command.engine, "model": command.model, "options": command.options}
        try:
            self.facts = self.ask(start)
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.perf_counter() - began

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The worker's answer to a batch; see engine_worker.run for both."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise OctavoError(
                f"the engine {self.command.name} ended early; its last words are above"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """End the process; safe to call twice."""
        assert self._process.stdin is not None
        # A pipe that the engine has closed can't be flushed.
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
