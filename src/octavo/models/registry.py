"""ModelRegistry: architecture names -> classes, imported when they are used."""

from __future__ import annotations

import difflib

from octavo.config.pooler import PoolerConfig
from octavo.models.common.encoder import Encoder
from octavo.models.context import ModelContext
from octavo.models.interfaces import CausalLM, PoolingModel
from octavo.models.pooled import DecoderPooler, EncoderPooler
from octavo.types.errors import ConfigError
from octavo.utils.registry import Registry

MODELS: Registry[type[CausalLM]] = Registry(
    "model",
    {
        "BloomForCausalLM": "octavo.models.bloom:BloomForCausalLM",
        "Cohere2ForCausalLM": "octavo.models.cohere:Cohere2ForCausalLM",
        "CohereForCausalLM": "octavo.models.cohere:CohereForCausalLM",
        "Exaone4ForCausalLM": "octavo.models.exaone:Exaone4ForCausalLM",
        "ExaoneForCausalLM": "octavo.models.exaone:ExaoneForCausalLM",
        "GPT2LMHeadModel": "octavo.models.gpt2:GPT2LMHeadModel",
        "GPTNeoXForCausalLM": "octavo.models.gpt_neox:GPTNeoXForCausalLM",
        "Gemma2ForCausalLM": "octavo.models.gemma2:Gemma2ForCausalLM",
        "Gemma3ForCausalLM": "octavo.models.gemma3:Gemma3ForCausalLM",
        "GemmaForCausalLM": "octavo.models.gemma:GemmaForCausalLM",
        "GraniteForCausalLM": "octavo.models.granite:GraniteForCausalLM",
        "InternLM2ForCausalLM": "octavo.models.internlm:InternLM2ForCausalLM",
        "InternLM3ForCausalLM": "octavo.models.internlm:InternLM3ForCausalLM",
        "InternLMForCausalLM": "octavo.models.internlm:InternLMForCausalLM",
        "LlamaForCausalLM": "octavo.models.llama:LlamaForCausalLM",
        "MPTForCausalLM": "octavo.models.mpt:MPTForCausalLM",
        "MistralForCausalLM": "octavo.models.llama:MistralForCausalLM",
        "MptForCausalLM": "octavo.models.mpt:MptForCausalLM",
        "OPTForCausalLM": "octavo.models.opt:OPTForCausalLM",
        "Olmo2ForCausalLM": "octavo.models.olmo2:Olmo2ForCausalLM",
        "Olmo3ForCausalLM": "octavo.models.olmo2:Olmo3ForCausalLM",
        "Phi3ForCausalLM": "octavo.models.phi3:Phi3ForCausalLM",
        "Qwen2ForCausalLM": "octavo.models.qwen2:Qwen2ForCausalLM",
        "Qwen3ForCausalLM": "octavo.models.qwen3:Qwen3ForCausalLM",
        "SmolLM3ForCausalLM": "octavo.models.smollm3:SmolLM3ForCausalLM",
        "StableLmForCausalLM": "octavo.models.stablelm:StableLmForCausalLM",
        "TransformersForCausalLM": "octavo.models.transformers_backend:TransformersForCausalLM",
    },
)


# Encoders, by the name of their architecture without its head.
ENCODER_MODELS: Registry[type[Encoder]] = Registry(
    "encoder",
    {
        "Bert": "octavo.models.bert:BertEncoder",
        "Camembert": "octavo.models.bert:RobertaEncoder",
        "DistilBert": "octavo.models.bert:DistilBertEncoder",
        "MPNet": "octavo.models.mpnet:MPNetEncoder",
        "ModernBert": "octavo.models.modernbert:ModernBertEncoder",
        "Roberta": "octavo.models.bert:RobertaEncoder",
        "XLMRoberta": "octavo.models.bert:RobertaEncoder",
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


def build_pooling_model(context: ModelContext, pooler: PoolerConfig) -> PoolingModel:
    """The model of `context.arch` with what `pooler` says it ends in, not yet initialised."""
    name = context.arch.architecture
    if context.arch.is_encoder:
        return EncoderPooler(context, pooler, ENCODER_MODELS.get(name)(context))
    return DecoderPooler(context, pooler, model_class(name)(context))
