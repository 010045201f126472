"""ModelRegistry: architecture names -> classes, imported when they are used."""

from __future__ import annotations

import difflib

from octavo.models.context import ModelContext
from octavo.models.interfaces import CausalLM
from octavo.types.errors import ConfigError
from octavo.utils.registry import Registry

MODELS: Registry[type[CausalLM]] = Registry(
    "model",
    {
        "LlamaForCausalLM": "octavo.models.llama:LlamaForCausalLM",
        "MistralForCausalLM": "octavo.models.llama:MistralForCausalLM",
        "Qwen2ForCausalLM": "octavo.models.qwen2:Qwen2ForCausalLM",
        "Qwen3ForCausalLM": "octavo.models.qwen3:Qwen3ForCausalLM",
    },
)


def register_model(architecture: str, model: str | type[CausalLM]) -> None:
    """Add a model from outside: a class, or "module:Class" to be imported when it is used."""
    MODELS.register(architecture, model)


def model_class(architecture: str) -> type[CausalLM]:
    """The class of an architecture as config.json names it; ConfigError lists what there is."""
    if architecture not in MODELS:
        close = difflib.get_close_matches(architecture, MODELS.names(), n=1)
        guess = f" Did you mean {close[0]}?" if close else ""
        raise ConfigError(
            f"no model for the architecture {architecture!r}; there are: "
            f"{', '.join(MODELS.names())}.{guess} Add one with "
            "octavo.models.registry.register_model"
        )
    return MODELS.get(architecture)


def build_model(context: ModelContext) -> CausalLM:
    """The model of `context.arch`, its parameters not yet initialised."""
    return model_class(context.arch.architecture)(context)
