"""Phi-3, Phi-3.5 and Phi-4."""

from __future__ import annotations

from octavo.models.common.decoder import DecoderCausalLM
from octavo.models.common.weights import CheckpointLayout


class Phi3ForCausalLM(DecoderCausalLM):
    """Llama's layers from fused checkpoint tensors (arXiv 2404.14219).

    Rotary scaling of the long-context models (longrope) and the share of a head that Phi-4-mini
    rotates are the config's.
    """

    checkpoint = CheckpointLayout(whole={"qkv_proj": "qkv_proj", "gate_up_proj": "gate_up_proj"})
