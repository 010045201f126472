"""UniProcExecutor: one worker, in the process of the engine core."""

from __future__ import annotations

from typing import Any

from octavo.config.octavo_config import OctavoConfig
from octavo.executor.interface import Executor, StepHandle
from octavo.types.kv_spec import KVCacheConfig, KVCacheSpec
from octavo.types.scheduler_output import SchedulerOutput
from octavo.worker.worker import Worker


class UniProcExecutor(Executor):
    """Calls the worker directly; a step is asynchronous as far as the device is."""

    def __init__(self, config: OctavoConfig) -> None:
        self._worker = Worker(config)

    def kv_cache_specs(self) -> dict[str, KVCacheSpec]:
        """See Executor."""
        return self._worker.kv_cache_specs()

    def available_kv_memory(self) -> int:
        """See Executor."""
        return self._worker.available_kv_memory()

    def initialize_kv_cache(self, config: KVCacheConfig) -> None:
        """See Executor."""
        self._worker.initialize_kv_cache(config)

    def execute_model(self, step: SchedulerOutput) -> StepHandle:
        """See Executor."""
        return self._worker.execute_model(step)

    def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        """See Executor; a name with a leading underscore is refused."""
        target = None if method.startswith("_") else getattr(self._worker, method, None)
        if not callable(target):
            raise ValueError(f"a worker has no public method {method!r}")
        return [target(*args)]

    def shutdown(self) -> None:
        """See Executor."""
        self._worker.shutdown()
