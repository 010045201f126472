"""Executor: how the engine core has a step run, and the registry of ways to do it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from octavo.config.octavo_config import OctavoConfig
from octavo.types.errors import ConfigError
from octavo.types.kv_spec import KVCacheConfig, KVCacheSpec
from octavo.types.runner_output import ModelRunnerOutput
from octavo.types.scheduler_output import GrammarMasks, SchedulerOutput
from octavo.utils.registry import Registry


class StepHandle(Protocol):
    """A step that has been launched."""

    def result(self) -> ModelRunnerOutput:
        """Wait for the step and return what it produced; raises what the device raised."""


class Executor(ABC):
    """The workers as one object. Any exception it raises is a fault of the device or of octavo.

    Life: construct (workers load the model), `kv_cache_specs`, `available_kv_memory`,
    `initialize_kv_cache`, then steps until `shutdown`.
    """

    @abstractmethod
    def __init__(self, config: OctavoConfig) -> None: ...

    @abstractmethod
    def kv_cache_specs(self) -> dict[str, KVCacheSpec]:
        """What each layer keeps in the cache, by layer name."""

    @abstractmethod
    def available_kv_memory(self) -> int:
        """Bytes that every worker can give to the KV cache, measured by a dummy step."""

    @abstractmethod
    def initialize_kv_cache(self, config: KVCacheConfig) -> None:
        """Allocate the cache, then warm up and capture what needs it."""

    @abstractmethod
    def execute_model(self, step: SchedulerOutput) -> StepHandle:
        """Launch the forward pass and the sampling of a step; returns before they are done.

        In a step with `grammar_rows` only the forward pass: `sample_tokens` must come before the
        next step and before its result is asked for.
        """

    @abstractmethod
    def sample_tokens(self, masks: GrammarMasks) -> None:
        """Launch the sampling of the step that waits for it; returns before it is done."""

    @abstractmethod
    def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        """Call a public method on every worker; one result per worker, in rank order."""

    def start_up_phases(self) -> dict[str, float]:
        """Seconds of each phase of the start so far; {} where nobody counts."""
        return {}

    def memory_lines(self) -> dict[str, int]:
        """Bytes of the device that each part of the worker took; {} where nobody measures."""
        return {}

    @abstractmethod
    def shutdown(self) -> None:
        """Stop the workers and free what they hold; safe to call twice."""


EXECUTORS: Registry[type[Executor]] = Registry(
    "executor", {"uni": "octavo.executor.uniproc:UniProcExecutor"}
)


def find_executor(name: str) -> type[Executor]:
    """The executor class for a `distributed_executor_backend`.

    `name` is a registered name or "module:Class" of an Executor found on the import path.
    Raises ConfigError for anything else.
    """
    if name not in EXECUTORS:
        if ":" not in name:
            raise ConfigError(
                f"distributed_executor_backend={name!r} is unknown; use one of "
                f'{", ".join(EXECUTORS.names())} or "module:Class"'
            )
        EXECUTORS.register(name, name)
    try:
        return EXECUTORS.get(name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"distributed_executor_backend={name!r} can't be imported: {error}"
        ) from error
