"""Worker: one device, from loading the model to running steps."""

from __future__ import annotations

from octavo.config.kv_specs import kv_cache_specs
from octavo.config.octavo_config import OctavoConfig
from octavo.platforms.interface import PLATFORMS
from octavo.types.kv_spec import KVCacheConfig, KVCacheGroup, KVCacheSpec
from octavo.types.scheduler_output import SchedulerOutput
from octavo.utils.logging import get_logger
from octavo.utils.phases import Phases
from octavo.worker.build import build_model, build_runner
from octavo.worker.output import AsyncOutput
from octavo.worker.parts import Runner
from octavo.worker.step import StepPlan
from octavo.worker.warmup import free_after_largest_step, warm_up

logger = get_logger(__name__)


class Worker:
    """Holds the model; the runner comes with the KV cache, whose size is decided in between."""

    def __init__(self, config: OctavoConfig) -> None:
        self._config = config
        self._phases = Phases()
        with self._phases("device"):
            self._platform = PLATFORMS.get(config.device.device_type)(config.device)
        with self._phases("load weights"):
            self._model = build_model(config, self._platform)
        self._runner: Runner | None = None

    def kv_cache_specs(self) -> dict[str, KVCacheSpec]:
        """What each layer keeps in the cache, by layer name."""
        return dict(kv_cache_specs(self._config))

    def available_kv_memory(self) -> int:
        """Bytes free for the cache; on a GPU, of the limit what the largest step leaves."""
        if self._config.device.device_type == "cpu":
            return self._platform.memory()[0]
        with self._phases("profile memory"):
            runner = build_runner(
                self._config, self._model, self._smallest_cache(), self._platform, graphs=False
            )
            return free_after_largest_step(runner, self._config, self._platform)

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        """Allocate the cache, warm up, capture graphs."""
        with self._phases("allocate KV cache"):
            self._runner = build_runner(
                self._config, self._model, kv_config, self._platform, graphs=True
            )
        with self._phases("warm up"):
            warm_up(self._runner, self._config)
        with self._phases("capture graphs"):
            self._runner.prepare()
        logger.info("worker start-up: %s", self._phases.summary())

    def execute_model(self, work: SchedulerOutput) -> AsyncOutput:
        """Queue a step; its results are awaited by the handle."""
        assert self._runner is not None, "steps need initialize_kv_cache first"
        return self._runner.execute_model(StepPlan.of(work))

    def _smallest_cache(self) -> KVCacheConfig:
        specs = self.kv_cache_specs()
        groups: dict[KVCacheSpec, list[str]] = {}
        for name, spec in specs.items():
            groups.setdefault(spec, []).append(name)
        return KVCacheConfig(
            num_blocks=1,
            groups=tuple(KVCacheGroup(tuple(names), spec) for spec, names in groups.items()),
        )

    def start_up_phases(self) -> dict[str, float]:
        """Seconds of each start-up phase."""
        return self._phases.seconds()

    def shutdown(self) -> None:
        """Wait for the device and drop what it holds."""
        self._platform.synchronize()
        self._runner = None
