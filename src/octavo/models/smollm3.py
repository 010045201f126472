"""SmolLM3."""

from __future__ import annotations

from octavo.models.common.decoder import DecoderCausalLM


class SmolLM3ForCausalLM(DecoderCausalLM):
    """Llama's layers, of which every fourth rotates nothing (NoPE, arXiv 2305.19466)."""
