"""ModelArch of any causal language model that transformers knows: for the Transformers backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from octavo.config import hf
from octavo.config.architectures import (
    FULL_ATTENTION,
    SLIDING_ATTENTION,
    TRANSFORMERS_MODEL,
    ModelArch,
    check_dtype,
    check_layer_types,
)
from octavo.config.rope import Rope, read_rope
from octavo.models.transformers_code import read_config
from octavo.types.errors import ConfigError

_DEFAULT_LENGTH = 2048  # of a model whose config names no limit


def transformers_arch(hf_config: Mapping[str, Any], code: Path | None) -> ModelArch:
    """The facts as the model's config class completes them, transformers' or its own in `code`.

    Raises ConfigError for a model transformers doesn't know, or with layers that keep something
    else than keys and values of one shape.
    """
    config = read_config(hf_config, code)
    if getattr(config, "is_encoder_decoder", False) or config.get_text_config() is not config:
        raise ConfigError(
            f"{hf_config['architectures'][0]} is not a plain decoder; the Transformers backend "
            "runs text-only causal language models"
        )
    num_layers, num_heads = config.num_hidden_layers, config.num_attention_heads
    window, layer_types = _windows(config, num_layers)
    rope = _rope(config)
    max_positions = getattr(config, "max_position_embeddings", None) or _DEFAULT_LENGTH
    head_size = _head_size(config)
    bos_ids = hf.token_ids(getattr(config, "bos_token_id", None), "bos_token_id")
    return ModelArch(
        architecture=TRANSFORMERS_MODEL,
        hidden_size=config.hidden_size,
        intermediate_size=_intermediate_size(config),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=_num_kv_heads(config),
        head_size=head_size,
        vocab_size=config.vocab_size,
        max_position_embeddings=max_positions,
        rope=rope,
        sliding_rope=rope,
        rotates=(True,) * num_layers,
        norm_eps=1e-6,
        tie_word_embeddings=bool(getattr(config, "tie_word_embeddings", False)),
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        gated_mlp=True,
        qk_norm=False,
        attention_scale=head_size**-0.5,
        attention_soft_cap=getattr(config, "attn_logit_softcapping", None),
        logits_soft_cap=None,
        alibi=False,
        sliding_window=window,
        layer_types=layer_types,
        hidden_act=str(getattr(config, "hidden_act", "")),
        dtype=check_dtype(hf.checkpoint_dtype(hf_config)),
        eos_token_ids=hf.token_ids(getattr(config, "eos_token_id", None), "eos_token_id"),
        bos_token_id=bos_ids[0] if bos_ids else None,
        max_model_len=rope.lengthened(max_positions),
    )


def _windows(config: PretrainedConfig, num_layers: int) -> tuple[int | None, tuple[str, ...]]:
    window = getattr(config, "sliding_window", None)
    if getattr(config, "use_sliding_window", True) is False:
        window = None
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return check_layer_types(tuple(kinds), window, num_layers)
    kind = FULL_ATTENTION if window is None else SLIDING_ATTENTION
    return window, (kind,) * num_layers


def _num_kv_heads(config: PretrainedConfig) -> int:
    """KV heads as the attention function gets them."""
    num_heads = int(config.num_attention_heads)
    if hasattr(config, "qk_nope_head_dim"):  # latent attention, expanded before it is computed
        return num_heads
    if getattr(config, "multi_query", False) and not getattr(
        config, "new_decoder_architecture", False
    ):
        return 1
    found = getattr(config, "num_key_value_heads", None) or getattr(config, "num_kv_heads", None)
    if found is not None and not isinstance(found, int):
        raise ConfigError(
            f"num_key_value_heads={found!r} in the model's config: the Transformers backend needs "
            "one number for all layers"
        )
    return found or num_heads


def _head_size(config: PretrainedConfig) -> int:
    """Elements of a query or key head; value heads may be smaller."""
    if hasattr(config, "qk_nope_head_dim"):
        return int(config.qk_nope_head_dim) + int(config.qk_rope_head_dim)
    return int(
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )


def _intermediate_size(config: PretrainedConfig) -> int:
    for name in ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"):
        found = getattr(config, name, None)
        if isinstance(found, int):
            return found
    return 4 * int(config.hidden_size)


def _rope(config: PretrainedConfig) -> Rope:
    """As far as it bears on the length limit; the model makes its angles itself."""
    try:
        return read_rope(config.to_dict(), 10000.0, layer_type=FULL_ATTENTION)
    except ConfigError:
        return Rope(theta=10000.0)
