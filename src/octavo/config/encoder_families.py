"""ENCODERS: architectures whose tokens see the whole text, and which keep nothing in a cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from octavo.config.families import GELU_TANH, Family

_ACTIVATIONS = ("gelu", *GELU_TANH, "relu", "silu")
_LAYER_NORM = {"rms_norm_eps": "layer_norm_eps"}

_BERT = Family(
    qkv_bias=True,
    o_bias=True,
    mlp_bias=True,
    gated_mlp=False,
    activations=_ACTIVATIONS,
    rotates="never",
    names=_LAYER_NORM,
    defaults={
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
    },
    only={
        "position_embedding_type": (None, "absolute"),
        "is_decoder": (None, False),
        "add_cross_attention": (None, False),
    },
)
_ROBERTA = replace(_BERT, defaults={**_BERT.defaults, "pad_token_id": 1})

_MODERN_BERT = Family(
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    mlp_bias="mlp_bias",
    activations=_ACTIVATIONS,
    windows="pattern_first",
    full_every=3,
    ropes_by_layer_type=True,
    names={
        "hidden_act": "hidden_activation",
        "rms_norm_eps": "norm_eps",
        "rope_theta": "global_rope_theta",
        "rope_local_base_freq": "local_rope_theta",
        "sliding_window": "local_attention",
        "sliding_window_pattern": "global_attn_every_n_layers",
    },
    defaults={
        "hidden_activation": "gelu",
        "norm_eps": 1e-5,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
        "local_attention": 128,
        "max_position_embeddings": 8192,
    },
    only={"rope_scaling": (None,)},
)

# By the name of an architecture without what says its head ("BertModel", "BertForMaskedLM").
ENCODERS: Mapping[str, Family] = {
    "Bert": _BERT,
    "Roberta": _ROBERTA,
    "XLMRoberta": _ROBERTA,
    "Camembert": _ROBERTA,
    "ModernBert": _MODERN_BERT,
    "MPNet": replace(
        _BERT,
        defaults={
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": 512,
            "pad_token_id": 1,
            "relative_attention_num_buckets": 32,
        },
        only={},
    ),
    "DistilBert": replace(
        _BERT,
        names={
            "hidden_size": "dim",
            "intermediate_size": "hidden_dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "hidden_act": "activation",
            "rms_norm_eps": "layer_norm_eps",
        },
        defaults={
            "activation": "gelu",
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": 512,
        },
        only={},
    ),
}
