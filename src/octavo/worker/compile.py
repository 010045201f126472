"""ModelCompiler: what is done to a model so that a compiler can have it, and its registry."""

from __future__ import annotations

from typing import Protocol

from octavo.config.runtime import CompilationMode
from octavo.kernels.op import KernelSet
from octavo.models.interfaces import CausalLM
from octavo.utils.envs import use_compiler_cache
from octavo.utils.registry import Registry


class ModelCompiler(Protocol):
    """Made from a mode and the type of the device; the two methods are called in this order."""

    def __init__(self, mode: CompilationMode, device_type: str) -> None: ...

    def kernels(self, kernels: KernelSet) -> KernelSet:
        """The kernels to build the model with."""
        ...

    def model(self, model: CausalLM) -> CausalLM:
        """The model to load and run."""
        ...


class NoCompiler:
    """Models run as they are written."""

    def __init__(self, mode: CompilationMode, device_type: str) -> None:
        pass

    def kernels(self, kernels: KernelSet) -> KernelSet:
        """`kernels` themselves."""
        return kernels

    def model(self, model: CausalLM) -> CausalLM:
        """`model` itself."""
        return model


_TORCH = "octavo.worker.torch_compile:TorchCompiler"

# By mode; torch's compiler takes seconds to import.
COMPILERS: Registry[type[ModelCompiler]] = Registry(
    "compilation mode",
    {
        "NONE": NoCompiler,
        "STOCK_TORCH_COMPILE": _TORCH,
        "DYNAMO_TRACE_ONCE": _TORCH,
        "VLLM_COMPILE": _TORCH,
    },
)


def model_compiler(mode: CompilationMode, device_type: str) -> ModelCompiler:
    """The compiler of a mode. Raises ConfigError where it can't run."""
    # Torch settles where its cache is when its compiler is imported.
    use_compiler_cache()
    return COMPILERS.get(mode)(mode, device_type)
