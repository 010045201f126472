"""ParallelConfig: over how many devices and processes a model is spread."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.options import option


@dataclass(frozen=True, kw_only=True)
class ParallelOptions:
    """What may be asked about parallelism."""

    tensor_parallel_size: int = option(
        1, "Devices that share each layer. This version runs on one.", short="-tp", low=1
    )
    pipeline_parallel_size: int = option(
        1, "Devices that share the stack of layers. This version runs on one.", short="-pp", low=1
    )
    data_parallel_size: int = option(
        1, "Copies of the engine. This version runs one.", short="-dp", low=1
    )
    distributed_executor_backend: str = option(
        "uni",
        "How workers are run. uni: one worker, in the engine core's process; or an executor of "
        "your own, as module:Class.",
    )


@dataclass(frozen=True, kw_only=True)
class ParallelConfig(ParallelOptions):
    """The spread as it will be."""

    @property
    def world_size(self) -> int:
        """Workers of one engine."""
        return self.tensor_parallel_size * self.pipeline_parallel_size
