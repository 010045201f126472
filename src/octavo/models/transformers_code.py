"""Code that comes with a model: its classes for transformers, loaded only where allowed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.dynamic_module_utils import get_class_from_dynamic_module
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from octavo.config.architectures import unknown_architecture
from octavo.config.code import CAUSAL_LM, CONFIG, code_reference, needs_code
from octavo.types.errors import ConfigError


def read_config(hf_config: Mapping[str, Any], code: Path | None) -> PretrainedConfig:
    """config.json as its own class completes it.

    `code` is the folder whose Python files may be run, or None. Raises ConfigError for a model
    that transformers doesn't know, or not without code that may not be run.
    """
    reference = code_reference(hf_config, CONFIG)
    values = {name: _numbers(value) for name, value in hf_config.items()}
    if code is None or reference is None:
        return _known_class(hf_config, code).from_dict(values)
    own = cast("type[PretrainedConfig]", _load(reference, code))
    try:
        return own.from_dict(values)
    # Whatever the code of others raises.
    except Exception as error:
        raise _failed(reference, code, error) from error


def causal_lm_class(
    config: PretrainedConfig, hf_config: Mapping[str, Any], code: Path | None
) -> type[PreTrainedModel] | None:
    """The model's own class where it may be used, else transformers'; None where neither is."""
    reference = code_reference(hf_config, CAUSAL_LM)
    if code is not None and reference is not None:
        return cast("type[PreTrainedModel]", _load(reference, code))
    return cast("type[PreTrainedModel] | None", MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None))


def _numbers(value: Any) -> Any:
    """A setting with infinities as numbers; transformers writes {"__float__": "Infinity"}."""
    if isinstance(value, Mapping):
        if value.keys() == {"__float__"}:
            return float(value["__float__"])
        return {name: _numbers(each) for name, each in value.items()}
    return [_numbers(each) for each in value] if isinstance(value, list) else value


def _known_class(hf_config: Mapping[str, Any], code: Path | None) -> type[PretrainedConfig]:
    names = hf_config.get("architectures") or ()
    model_type = str(hf_config.get("model_type"))
    reference = code_reference(hf_config, CAUSAL_LM)
    # Where transformers' class has another name, it is another model.
    other = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type) not in names
    if code is None and reference is not None and other:
        raise needs_code(hf_config, reference)
    if not names or model_type not in CONFIG_MAPPING:
        raise unknown_architecture(hf_config)
    return CONFIG_MAPPING[model_type]


def _load(reference: str, code: Path) -> Any:
    """The class that an entry of auto_map names, by transformers' dynamic modules."""
    try:
        try:
            return get_class_from_dynamic_module(reference, str(code))
        except SystemError:
            # transformers parses the file, and Python 3.11 counts the depth of what its threads
            # parse together: another thread that does so at that moment makes it fail.
            return get_class_from_dynamic_module(reference, str(code))
    # Whatever the code of others raises.
    except Exception as error:
        raise _failed(reference, code, error) from error


def _failed(what: str, code: Path, error: Exception) -> ConfigError:
    return ConfigError(
        f"the model's own code, {what} in {code}, can't be used: {type(error).__name__}: {error}; "
        "it may be written for another version of transformers"
    )
