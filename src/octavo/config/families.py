"""FAMILIES: what each architecture fixes, and what its configs call things and may leave out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

GELU_TANH = ("gelu_pytorch_tanh", "gelu_new", "gelu_fast")

# Which layers slide: none; all, if the config has a window; those that use_sliding_window and
# max_window_layers say; all but every n-th, or but the first and every n-th from there. A config's
# layer_types goes before any but "never".
Windows = Literal["never", "always", "if_used", "pattern", "pattern_first"]
# Which layers rotate queries and keys: all; none; the sliding ones; the sliding ones if there are
# any; those with a nonzero entry in no_rope_layers.
Rotates = Literal["all", "never", "sliding", "sliding_or_all", "listed"]


@dataclass(frozen=True, kw_only=True)
class Family:
    """One architecture.

    A bias is there, or not, or as the named entry of the config says. `names` maps the entries
    that octavo reads to what this family's configs call them; `defaults` are entries, under the
    family's own names, of files that leave them out; `only` are entries whose other values the
    architecture has and octavo's model has not.
    """

    qkv_bias: bool | str = False
    o_bias: bool | str = False
    mlp_bias: bool | str = False
    gated_mlp: bool = True
    inner_factor: int | None = None  # intermediate_size / hidden_size where the config has none
    activations: tuple[str, ...] = ("silu",)
    qk_norm: bool = False
    windows: Windows = "never"
    full_every: int = 0  # "pattern": every n-th layer sees everything
    rotates: Rotates = "all"
    ropes_by_layer_type: bool = False
    counts_scaling: bool = False  # max_position_embeddings includes the rotary scaling
    alibi: bool = False
    scale_entry: str | None = None  # scores are multiplied by this entry to the power below
    scale_power: float = 1.0
    rope_theta: float = 10000.0
    partial_rotary_factor: float = 1.0
    head_dim: int | None = None  # None: hidden_size / heads
    names: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


_GEMMA = {
    "tie_word_embeddings": True,
    "max_position_embeddings": 8192,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
_GEMMA_ONLY = {"use_bidirectional_attention": (None, False)}
_LAYER_NORM = {"rms_norm_eps": "layer_norm_eps"}
_GPT2_NAMES = {
    "hidden_size": "n_embd",
    "intermediate_size": "n_inner",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "hidden_act": "activation_function",
    "rms_norm_eps": "layer_norm_epsilon",
}
_MPT = Family(
    gated_mlp=False,
    inner_factor=4,
    activations=("gelu",),
    rotates="never",
    alibi=True,
    names={
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "max_position_embeddings": "max_seq_len",
        "rms_norm_eps": "layer_norm_epsilon",
    },
    defaults={
        "hidden_act": "gelu",
        "max_seq_len": 2048,
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
    },
    only={"no_bias": (True, None), "expansion_ratio": (4, None), "logit_scale": (None,)},
)

FAMILIES: Mapping[str, Family] = {
    "LlamaForCausalLM": Family(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        mlp_bias="mlp_bias",
        defaults={"max_position_embeddings": 2048},
    ),
    "MistralForCausalLM": Family(
        windows="always",
        defaults={"max_position_embeddings": 131072, "sliding_window": 4096},
    ),
    "Qwen2ForCausalLM": Family(
        qkv_bias=True,
        windows="if_used",
        defaults={"max_position_embeddings": 32768},
    ),
    "Qwen3ForCausalLM": Family(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm=True,
        windows="if_used",
        head_dim=128,
        defaults={"max_position_embeddings": 32768},
    ),
    "GemmaForCausalLM": Family(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        # Its configs say gelu and mean the approximation.
        activations=(*GELU_TANH, "gelu"),
        head_dim=256,
        defaults=_GEMMA | {"hidden_act": "gelu_pytorch_tanh"},
        only=_GEMMA_ONLY,
    ),
    "Gemma2ForCausalLM": Family(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        activations=GELU_TANH,
        windows="pattern",
        full_every=2,
        head_dim=256,
        scale_entry="query_pre_attn_scalar",
        scale_power=-0.5,
        names={"hidden_act": "hidden_activation"},
        defaults=_GEMMA
        | {
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": 256,
            "sliding_window": 4096,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
        only=_GEMMA_ONLY,
    ),
    "Gemma3ForCausalLM": Family(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        activations=GELU_TANH,
        qk_norm=True,
        windows="pattern",
        full_every=6,
        ropes_by_layer_type=True,
        counts_scaling=True,
        head_dim=256,
        scale_entry="query_pre_attn_scalar",
        scale_power=-0.5,
        rope_theta=1_000_000.0,
        names={"hidden_act": "hidden_activation"},
        defaults=_GEMMA
        | {
            "hidden_activation": "gelu_pytorch_tanh",
            "max_position_embeddings": 131072,
            "query_pre_attn_scalar": 256,
            "rope_local_base_freq": 10000.0,
            "sliding_window": 4096,
        },
        only=_GEMMA_ONLY,
    ),
    "Phi3ForCausalLM": Family(
        windows="always",
        defaults={"max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
    ),
    "Olmo2ForCausalLM": Family(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm=True,
        defaults={"max_position_embeddings": 2048, "rms_norm_eps": 1e-5},
    ),
    "Olmo3ForCausalLM": Family(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm=True,
        windows="pattern",
        full_every=4,
        ropes_by_layer_type=True,
        rope_theta=500_000.0,
        defaults={
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-5,
            "sliding_window": 4096,
        },
    ),
    "GraniteForCausalLM": Family(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        mlp_bias="mlp_bias",
        scale_entry="attention_multiplier",
        defaults={"max_position_embeddings": 2048, "attention_multiplier": 1.0},
    ),
    "StableLmForCausalLM": Family(
        qkv_bias="use_qkv_bias",
        partial_rotary_factor=0.25,
        names=_LAYER_NORM,
        defaults={"max_position_embeddings": 4096, "layer_norm_eps": 1e-5},
    ),
    "GPT2LMHeadModel": Family(
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        gated_mlp=False,
        inner_factor=4,
        activations=(*GELU_TANH, "gelu", "relu", "silu"),
        rotates="never",
        names=_GPT2_NAMES,
        defaults={
            "n_positions": 1024,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "tie_word_embeddings": True,
            "eos_token_id": 50256,
            "bos_token_id": 50256,
        },
        only={"add_cross_attention": (None, False), "scale_attn_weights": (None, True)},
    ),
    "GPTNeoXForCausalLM": Family(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        mlp_bias=True,
        gated_mlp=False,
        activations=(*GELU_TANH, "gelu", "relu"),
        partial_rotary_factor=0.25,
        names=_LAYER_NORM
        | {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
        defaults={
            "hidden_act": "gelu",
            "max_position_embeddings": 2048,
            "layer_norm_eps": 1e-5,
            "attention_bias": True,
        },
    ),
    "OPTForCausalLM": Family(
        qkv_bias="enable_bias",
        o_bias="enable_bias",
        mlp_bias="enable_bias",
        gated_mlp=False,
        activations=("relu", "gelu", "silu"),
        rotates="never",
        names={
            "intermediate_size": "ffn_dim",
            "hidden_act": "activation_function",
            "rms_norm_eps": "layer_norm_eps",
        },
        defaults={
            "max_position_embeddings": 2048,
            "activation_function": "relu",
            "layer_norm_eps": 1e-5,
            "enable_bias": True,
            "tie_word_embeddings": True,
            "eos_token_id": 2,
            "bos_token_id": 2,
        },
        only={
            "do_layer_norm_before": (None, True),
            "_remove_final_layer_norm": (None, False),
            "layer_norm_elementwise_affine": (None, True),
        },
    ),
    "InternLMForCausalLM": Family(
        qkv_bias="bias",
        o_bias="bias",
        defaults={"max_position_embeddings": 2048, "bias": True},
    ),
    "InternLM2ForCausalLM": Family(
        qkv_bias="bias",
        o_bias="bias",
        mlp_bias=False,
        defaults={"max_position_embeddings": 2048},
    ),
    "InternLM3ForCausalLM": Family(
        qkv_bias="qkv_bias",
        o_bias="bias",
        mlp_bias="bias",
        head_dim=128,
        defaults={"max_position_embeddings": 32768},
    ),
    "CohereForCausalLM": Family(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        rope_theta=500_000.0,
        names=_LAYER_NORM,
        defaults={
            "max_position_embeddings": 8192,
            "layer_norm_eps": 1e-5,
            "tie_word_embeddings": True,
        },
    ),
    "Cohere2ForCausalLM": Family(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows="pattern",
        full_every=4,
        rotates="sliding",
        names=_LAYER_NORM,
        defaults={
            "max_position_embeddings": 8192,
            "layer_norm_eps": 1e-5,
            "sliding_window": 4096,
            "tie_word_embeddings": True,
        },
    ),
    "SmolLM3ForCausalLM": Family(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        mlp_bias="mlp_bias",
        windows="if_used",
        rotates="listed",
        rope_theta=2_000_000.0,
        defaults={"max_position_embeddings": 32768, "tie_word_embeddings": True},
    ),
    "ExaoneForCausalLM": Family(
        names={
            "num_hidden_layers": "num_layers",
            "hidden_act": "activation_function",
            "rms_norm_eps": "layer_norm_epsilon",
        },
        defaults={"max_position_embeddings": 2048, "layer_norm_epsilon": 1e-5},
    ),
    "Exaone4ForCausalLM": Family(
        qk_norm=True,
        windows="pattern",
        full_every=4,
        rotates="sliding_or_all",
        defaults={
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-5,
            "sliding_window": 4096,
        },
    ),
    "MptForCausalLM": _MPT,
    "MPTForCausalLM": _MPT,
    "BloomForCausalLM": Family(
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        gated_mlp=False,
        inner_factor=4,
        activations=GELU_TANH,
        rotates="never",
        alibi=True,
        names={
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "max_position_embeddings": "seq_length",
            "rms_norm_eps": "layer_norm_epsilon",
        },
        defaults={
            "hidden_act": "gelu_fast",
            "seq_length": 2048,
            "layer_norm_epsilon": 1e-5,
            "tie_word_embeddings": True,
        },
        only={"apply_residual_connection_post_layernorm": (None, False)},
    ),
}
