"""ATTENTION_BACKENDS, and which of them serves a KV group."""

from __future__ import annotations

from typing import Any

from octavo.attention.interface import AttentionBackend, AttentionSetup
from octavo.types.errors import ConfigError
from octavo.utils.logging import get_logger
from octavo.utils.registry import Registry

logger = get_logger(__name__)

ATTENTION_BACKENDS: Registry[type[AttentionBackend[Any]]] = Registry(
    "attention backend",
    {
        "cpu_native": "octavo.attention.backends.cpu_native:CPUNativeAttention",
        "flash_attn": "octavo.attention.backends.flash_attn:FlashAttention",
        "flashinfer": "octavo.attention.backends.flashinfer:FlashInferAttention",
        "torch_sdpa": "octavo.attention.backends.torch_sdpa:TorchSDPA",
        "triton": "octavo.attention.backends.triton:TritonAttention",
        "triton_invariant": "octavo.attention.backends.triton_invariant:TritonInvariant",
    },
)

# Device type -> names in the order of preference. torch_sdpa plans on the host: on a device that
# stalls every step, so there it must be asked for. So must be flash_attn and flashinfer, which no
# measurement has shown to be the faster ones (docs/performance.md).
PREFERENCE = {
    "cpu": ("cpu_native", "torch_sdpa"),
    "cuda": ("triton", "triton_invariant"),
}


def register_backend(name: str, backend: str | type[AttentionBackend[Any]]) -> None:
    """Add a backend from outside, to be asked for by name: a class or "module:Class"."""
    ATTENTION_BACKENDS.register(name, backend)


def select_backend(setup: AttentionSetup, name: str | None = None) -> type[AttentionBackend[Any]]:
    """The backend called `name`, or without a name the first that can serve `setup`.

    Raises ConfigError with each backend's reasons when the one asked for, or every one, can't.
    """
    if name is not None:
        return _required(setup, name)
    refusals: list[str] = []
    for candidate in PREFERENCE.get(setup.device.type, ()):
        backend = ATTENTION_BACKENDS.get(candidate)
        reasons = backend.unsupported(setup)
        if not reasons:
            because = f" ({'; '.join(refusals)})" if refusals else ""
            logger.info("attention backend %s%s", candidate, because)
            return backend
        refusals.append(f"not {candidate}: {', '.join(reasons)}")
    why = "; ".join(refusals) or "none is preferred for this device"
    raise ConfigError(f"no attention backend for {setup.device.type}: {why}")


def _required(setup: AttentionSetup, name: str) -> type[AttentionBackend[Any]]:
    if name not in ATTENTION_BACKENDS:
        raise ConfigError(
            f"attention backend {name!r} is not known; there are: "
            f"{', '.join(ATTENTION_BACKENDS.names())}"
        )
    backend = ATTENTION_BACKENDS.get(name)
    reasons = backend.unsupported(setup)
    if reasons:
        raise ConfigError(
            f"attention backend {name!r} can't be used here: {', '.join(reasons)}; leave the "
            "choice to octavo or name another"
        )
    return backend
