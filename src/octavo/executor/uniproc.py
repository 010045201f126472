"""UniProcExecutor: one worker, in the process of the engine core."""

from __future__ import annotations

from typing import Any, Protocol

from octavo.config.octavo_config import OctavoConfig
from octavo.executor.interface import Executor, StepHandle
from octavo.kernels.compile_start import Start, begin_kernels
from octavo.platforms.wake import wake_cuda
from octavo.types.kv_spec import KVCacheConfig, KVCacheSpec
from octavo.types.scheduler_output import GrammarMasks, SchedulerOutput
from octavo.utils.phases import Phases
from octavo.utils.registry import Registry


class _Worker(Protocol):
    """What is called of the worker; all its public methods can be, by name."""

    def __init__(self, config: OctavoConfig, start: Start) -> None: ...

    def kv_cache_specs(self) -> dict[str, KVCacheSpec]: ...

    def available_kv_memory(self) -> int: ...

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None: ...

    def execute_model(self, work: SchedulerOutput) -> StepHandle: ...

    def sample_tokens(self, masks: GrammarMasks) -> None: ...

    def start_up_phases(self) -> dict[str, float]: ...

    def memory_lines(self) -> dict[str, int]: ...

    def shutdown(self) -> None: ...


# By string: the worker brings torch, whose import takes seconds, in which kernels are compiled.
WORKERS: Registry[type[_Worker]] = Registry("worker", {"default": "octavo.worker.worker:Worker"})


class UniProcExecutor(Executor):
    """Calls the worker directly; a step is asynchronous as far as the device is."""

    def __init__(self, config: OctavoConfig) -> None:
        self._phases = Phases()
        with self._phases("imports"):
            kernels = begin_kernels(config)
            if config.device.device_type == "cuda":
                wake_cuda()
            make_worker = WORKERS.get("default")
        self._worker = make_worker(config, kernels)

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

    def sample_tokens(self, masks: GrammarMasks) -> None:
        """See Executor."""
        self._worker.sample_tokens(masks)

    def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        """See Executor; a name with a leading underscore is refused."""
        target = None if method.startswith("_") else getattr(self._worker, method, None)
        if not callable(target):
            raise ValueError(f"a worker has no public method {method!r}")
        return [target(*args)]

    def start_up_phases(self) -> dict[str, float]:
        """See Executor."""
        return self._phases.seconds() | self._worker.start_up_phases()

    def memory_lines(self) -> dict[str, int]:
        """See Executor."""
        return dict(self._worker.memory_lines())

    def shutdown(self) -> None:
        """See Executor."""
        self._worker.shutdown()
