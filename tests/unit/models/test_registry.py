import pytest

from octavo.config.architectures import TRANSFORMERS_MODEL
from octavo.config.families import FAMILIES
from octavo.models import registry
from octavo.models.common.decoder import DecoderCausalLM
from octavo.models.interfaces import CausalLM
from octavo.models.registry import MODELS, build_model, model_class, register_model
from octavo.types.errors import ConfigError
from octavo.utils.registry import Registry
from support.plugin_model import PluginModel
from support.tiny_models import model_context


def test_every_architecture_has_a_model():
    assert set(FAMILIES) | {TRANSFORMERS_MODEL} == set(MODELS.names())
    for architecture in FAMILIES:
        found = model_class(architecture)
        assert found.__name__ == architecture
        assert issubclass(found, DecoderCausalLM)


def test_unknown_architecture_lists_what_there_is():
    with pytest.raises(ConfigError) as error:
        model_class("Qwen3ForCausalLm")
    message = str(error.value)
    assert "'Qwen3ForCausalLm'" in message
    assert "Did you mean Qwen3ForCausalLM?" in message
    assert all(name in message for name in MODELS.names())
    assert "register_model" in message


@pytest.mark.parametrize("entry", [PluginModel, "support.plugin_model:PluginModel"])
def test_plug_in_model(monkeypatch, entry, tiny_files):
    monkeypatch.setattr(registry, "MODELS", Registry("model"))
    register_model("LlamaForCausalLM", entry)
    model = build_model(model_context(tiny_files))
    assert type(model) is PluginModel
    assert isinstance(model, CausalLM)
    with pytest.raises(ValueError, match="already registered"):
        register_model("LlamaForCausalLM", DecoderCausalLM)
