"""Worker: one device, from loading the model to running steps."""

from __future__ import annotations

from pathlib import Path

from octavo.config.kv_specs import kv_cache_specs
from octavo.config.octavo_config import OctavoConfig
from octavo.kernels.compile_start import NoKernelStart, Start
from octavo.platforms.interface import PLATFORMS, Platform
from octavo.types.kv_spec import KVCacheConfig, KVCacheSpec
from octavo.types.scheduler_output import GrammarMasks, SchedulerOutput
from octavo.utils.phases import Phases
from octavo.worker.build import build_model, build_runner, load_weights, save_sharded_state
from octavo.worker.kv_cache import smallest_cache
from octavo.worker.memory import MemoryLedger
from octavo.worker.output import AsyncOutput, LateOutput
from octavo.worker.parts import Runner
from octavo.worker.profiler import WorkerProfiler
from octavo.worker.step import StepPlan
from octavo.worker.warmup import free_memory, run_dummy, run_largest_steps, warm_up


class Worker:
    """Holds the model; the runner comes with the KV cache, whose size is decided in between."""

    def __init__(
        self, config: OctavoConfig, start: Start | None = None, platform: Platform | None = None
    ) -> None:
        """`start`: what was begun about kernels before torch was imported.

        `platform` stands in for the configured device.
        """
        self._config = config
        self._phases = Phases()
        with self._phases("device"):
            make_platform = PLATFORMS.get(config.device.device_type)
            self._platform = platform or make_platform(config.device)
        self._kernels = (start or NoKernelStart()).load(self._platform.device)
        self._memory = MemoryLedger(self._platform)
        with self._phases("model"), self._memory.kept("model"):
            self._model = build_model(config, self._platform)
        with self._phases("weights"), self._memory.kept("weights"):
            load_weights(config, self._model, self._platform)
        with self._phases("kernels"):
            self._kernels.finish()
        self._runner: Runner | None = None
        self._profiler: WorkerProfiler | None = None

    def kv_cache_specs(self) -> dict[str, KVCacheSpec]:
        """What each layer keeps in the cache, by layer name."""
        return dict(kv_cache_specs(self._config))

    def available_kv_memory(self) -> int:
        """Bytes free for the cache; on a GPU, of the limit what the largest step leaves."""
        if self._config.device.device_type == "cpu":
            return self._platform.memory()[0]
        cache = smallest_cache(self._config)
        with self._phases("profile memory"):
            runner = build_runner(self._config, self._model, cache, self._platform, graphs=False)
            with self._memory.passing("largest steps"):
                run_largest_steps(runner, self._config, self._platform)
            free = free_memory(self._config, self._platform)
            # The cache is one piece of what the allocator would keep for steps, in pieces.
            del runner
            self._platform.forget_peak()
            return free

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        """Allocate the cache, warm up, capture graphs."""
        with self._phases("allocate KV cache"), self._memory.kept("cache and tables"):
            self._runner = build_runner(
                self._config, self._model, kv_config, self._platform, graphs=True
            )
        with self._phases("warm up"):
            warm_up(self._runner, self._config, self._platform)
        with self._phases("capture graphs"), self._memory.growth("graphs"):
            self._runner.prepare()

    def execute_model(self, work: SchedulerOutput) -> AsyncOutput | LateOutput:
        """Queue a step; its results are awaited by the handle."""
        assert self._runner is not None, "steps need initialize_kv_cache first"
        return self._runner.execute_model(StepPlan.of(work))

    def sample_tokens(self, masks: GrammarMasks) -> None:
        """Queue the rest of a step with grammar rows."""
        assert self._runner is not None, "steps need initialize_kv_cache first"
        self._runner.sample_tokens(masks)

    def run_made_up(self, plan: StepPlan) -> None:
        """Run a step over requests that nobody made, and forget them."""
        assert self._runner is not None, "steps need initialize_kv_cache first"
        run_dummy(self._runner, plan, self._platform)

    def save_sharded_state(self, folder: str, max_size: int) -> None:
        """Write the weights as this engine holds them to `folder`, in files of `max_size` bytes."""
        save_sharded_state(self._config, Path(folder), max_size)

    def memory_lines(self) -> dict[str, int]:
        """Bytes that the parts took of the device, by name; {} where nobody can tell."""
        return {} if self._config.device.device_type == "cpu" else self._memory.lines()

    def start_up_phases(self) -> dict[str, float]:
        """Seconds of each start-up phase."""
        return self._phases.seconds()

    def start_profile(self) -> None:
        """Record what device and host do in the steps from now on."""
        assert self._runner is not None, "steps need initialize_kv_cache first"
        self._profiler = WorkerProfiler(self._runner, self._platform.device, rank=0)

    def stop_profile(self, prefix: str) -> str:
        """End the recording; returns the path of its ChromeTrace file, which begins `prefix`."""
        assert self._profiler is not None, "stop_profile comes after start_profile"
        path = Path(f"{prefix}.rank0")
        self._profiler.stop(path)
        self._profiler = None
        return str(path)

    def shutdown(self) -> None:
        """Wait for the device and drop what it holds."""
        self._kernels.close()
        self._platform.synchronize()
        self._runner = None
