"""Qwen1.5, Qwen2 and Qwen2.5."""

from __future__ import annotations

from octavo.models.common.decoder import DecoderCausalLM


class Qwen2ForCausalLM(DecoderCausalLM):
    """Llama's layers with biases on q, k and v (arXiv 2407.10671); ModelArch.qkv_bias says so."""
