"""The sections about running: device, attention, CUDA graphs, observability."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from octavo.config.options import option


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """What may be asked about the device; the outcome is a PlatformInfo."""

    device: Literal["auto", "cpu", "cuda"] = option(
        "auto", "Device to run on. auto: an NVIDIA GPU if there is one, else the CPU."
    )


@dataclass(frozen=True, kw_only=True)
class AttentionOptions:
    """What may be asked about attention."""

    attention_backend: Literal["torch_sdpa", "triton"] | None = option(
        None, "Attention implementation; by default the best for the device."
    )


@dataclass(frozen=True, kw_only=True)
class AttentionConfig(AttentionOptions):
    """The attention implementation asked for."""

    @property
    def backend(self) -> str | None:
        """A registered name, or None: chosen for the device."""
        return self.attention_backend


@dataclass(frozen=True, kw_only=True)
class CompilationOptions:
    """What may be asked about CUDA graphs."""

    cudagraph_capture_sizes: tuple[int, ...] | None = option(
        None,
        "Numbers of tokens for which a CUDA graph is kept; a step is padded to the next. By "
        "default about two dozen sizes up to --max-cudagraph-capture-size.",
        low=1,
    )
    max_cudagraph_capture_size: int | None = option(
        None,
        "Largest step run as a CUDA graph, in tokens. By default --max-num-seqs, at most 512.",
        low=1,
    )


@dataclass(frozen=True, kw_only=True)
class CompilationConfig(CompilationOptions):
    """The graphs as they will be: none on a CPU or when eager."""

    cudagraph_capture_sizes: tuple[int, ...] = field()  # ascending
    max_cudagraph_capture_size: int = field()  # 0: no graphs


@dataclass(frozen=True, kw_only=True)
class ObservabilityOptions:
    """What may be asked about logs and statistics."""

    disable_log_stats: bool = option(
        False, "Keep no statistics: no log line every ten seconds and no engine metrics."
    )
    enable_log_requests: bool = option(
        False, "Log each request's id and parameters when it arrives."
    )


@dataclass(frozen=True, kw_only=True)
class ObservabilityConfig(ObservabilityOptions):
    """What is logged and counted."""
