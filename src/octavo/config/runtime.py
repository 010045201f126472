"""The sections about running: device, attention, kernels, compilation, observability."""

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

    attention_backend: Literal["torch_sdpa", "triton", "flash_attn", "flashinfer"] | None = option(
        None,
        "Attention implementation; by default the best for the device. flash_attn (experimental): "
        "FlashAttention 3, 4 or 2, whichever is installed, also as a part of vLLM. flashinfer "
        "(experimental): the package of that name, without CUDA graphs.",
    )
    disable_cascade_attn: bool = option(
        False,
        "Have every running request read a prompt's beginning that it shares with others by "
        "itself, instead of once for all of them where that pays. In vLLM this is true by default.",
    )


@dataclass(frozen=True, kw_only=True)
class AttentionConfig(AttentionOptions):
    """The attention implementation asked for."""

    @property
    def backend(self) -> str | None:
        """A registered name, or None: chosen for the device."""
        return self.attention_backend


@dataclass(frozen=True, kw_only=True)
class KernelOptions:
    """What may be asked about kernels."""

    batch_invariant: bool = option(
        False,
        "Give a request the same logits, bit for bit, alone and in any batch, however its prompt "
        "is cut and whether it is preempted.",
    )


@dataclass(frozen=True, kw_only=True)
class KernelConfig(KernelOptions):
    """Which kernels run."""


CompilationMode = Literal["NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE"]


@dataclass(frozen=True, kw_only=True)
class CompilationOptions:
    """What may be asked about the compiler and CUDA graphs."""

    optimization_level: int | None = option(
        None,
        "Level 0: neither compiler nor CUDA graphs; 1, 2, 3: torch.compile, mode VLLM_COMPILE. By "
        "default CUDA graphs without the compiler, which octavo's own kernels don't need.",
        short="-O",
        low=0,
        high=3,
    )
    compilation_mode: (
        Literal[
            "NONE",
            "STOCK_TORCH_COMPILE",
            "DYNAMO_TRACE_ONCE",
            "VLLM_COMPILE",
            "0",
            "1",
            "2",
            "3",
        ]
        | None
    ) = option(
        None,
        "Use of torch.compile, as name or number. STOCK_TORCH_COMPILE (1): as it comes, compiling "
        "again when its assumptions fail; DYNAMO_TRACE_ONCE (2): traced once for every number of "
        "tokens; VLLM_COMPILE (3): so too, and cut at attention, equal parts compiled once.",
    )
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
    """The compiler's mode and the graphs as they will be: no graphs on a CPU or when eager."""

    compilation_mode: CompilationMode = field()
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
    metrics_prefix: Literal["octavo", "vllm"] = option(
        "octavo", "First word of every metric's name; vllm: dashboards written for vLLM work."
    )
    otlp_traces_endpoint: str | None = option(
        None, "Send a trace span per request to this OpenTelemetry collector (gRPC or http URL)."
    )


@dataclass(frozen=True, kw_only=True)
class ObservabilityConfig(ObservabilityOptions):
    """What is logged and counted."""
