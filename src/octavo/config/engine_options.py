"""EngineOptions: the flat mirror of the sections, checked field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from octavo.config.cache import CacheOptions
from octavo.config.convert import convert
from octavo.config.flatten import flatten
from octavo.config.load import LoadOptions
from octavo.config.model import ModelOptions
from octavo.config.options import Option, options_of
from octavo.config.parallel import ParallelOptions
from octavo.config.runtime import (
    AttentionOptions,
    CompilationOptions,
    DeviceOptions,
    KernelOptions,
    ObservabilityOptions,
)
from octavo.config.scheduler import SchedulerOptions
from octavo.config.structured_outputs import StructuredOutputsOptions

SECTIONS: Mapping[str, type] = {
    "model": ModelOptions,
    "load": LoadOptions,
    "cache": CacheOptions,
    "scheduler": SchedulerOptions,
    "parallel": ParallelOptions,
    "attention": AttentionOptions,
    "kernel": KernelOptions,
    "compilation": CompilationOptions,
    "structured_outputs": StructuredOutputsOptions,
    "observability": ObservabilityOptions,
    "device": DeviceOptions,
}


def engine_options() -> dict[str, Option]:
    """Every option of the engine by name, section after section."""
    return {
        name: known
        for section, cls in SECTIONS.items()
        for name, known in options_of(cls, section).items()
    }


@dataclass(frozen=True, kw_only=True)
class EngineOptions(
    DeviceOptions,
    ObservabilityOptions,
    StructuredOutputsOptions,
    CompilationOptions,
    KernelOptions,
    AttentionOptions,
    ParallelOptions,
    SchedulerOptions,
    CacheOptions,
    LoadOptions,
    ModelOptions,
):
    """The fields of every section side by side; inheriting keeps it in step with them.

    Values are converted like those of flags ("4k" is 4000). Raises ConfigError naming the field,
    the value and what is expected.
    """

    def __post_init__(self) -> None:
        for name, known in engine_options().items():
            value = getattr(self, name)
            if name == "max_model_len" and value in (-1, "-1"):
                value = "auto"
            object.__setattr__(self, name, convert(known, value))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """From flat names or nested sections (`{"cache_config": {...}}`), dashes allowed.

        Raises ConfigError for an unknown name, with the nearest known one.
        """
        return cls(**flatten(values, engine_options()))
