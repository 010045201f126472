"""Llama and what has its shape: Llama 1 to 3, SmolLM2, Falcon 3, Mistral."""

from __future__ import annotations

from octavo.models.common.decoder import DecoderCausalLM


class LlamaForCausalLM(DecoderCausalLM):
    """The plain decoder (arXiv 2302.13971); Llama 3.1's rotary scaling is the config's."""


class MistralForCausalLM(DecoderCausalLM):
    """Llama's layers, some or all with a sliding window (arXiv 2310.06825)."""
