"""InternLM 1, 2 and 3."""

from __future__ import annotations

from octavo.models.common.decoder import DecoderCausalLM
from octavo.models.common.weights import CheckpointLayout


class InternLMForCausalLM(DecoderCausalLM):
    """Llama's layers with biases in attention."""


class InternLM2ForCausalLM(DecoderCausalLM):
    """Llama's layers; q, k and v come in one tensor, KV head by KV head (arXiv 2403.17297)."""

    checkpoint = CheckpointLayout(
        names=(
            ("model.embed_tokens", "model.tok_embeddings"),
            ("lm_head", "output"),
            ("self_attn", "attention"),
            ("attention.o_proj", "attention.wo"),
            ("mlp.gate_proj", "feed_forward.w1"),
            ("mlp.up_proj", "feed_forward.w3"),
            ("mlp.down_proj", "feed_forward.w2"),
            ("input_layernorm", "attention_norm"),
            ("post_attention_layernorm", "ffn_norm"),
        ),
        whole={"qkv_proj": "wqkv"},
        by_head=True,
    )


class InternLM3ForCausalLM(DecoderCausalLM):
    """Llama's layers; whether q, k and v have biases and whether others have are two settings."""
