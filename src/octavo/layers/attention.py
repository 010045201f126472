"""Attention: a layer's q/k/v through rotary and cache write into its group's backend."""

from __future__ import annotations

import torch
from torch import nn

from octavo.attention.interface import AttentionContext, AttentionParams
from octavo.layers.context import LayerContext
from octavo.layers.norm import RMSNorm
from octavo.layers.rotary import RotaryEmbedding


class Attention(nn.Module):
    """Causal attention of one decoder layer over the paged cache.

    `name` is the layer's key in AttentionContext.caches and in the KV cache specs. `q_norm` and
    `k_norm`, if any, are per head and belong to the caller, whose checkpoint names they bear.
    """

    def __init__(
        self,
        context: LayerContext,
        params: AttentionParams,
        rotary: RotaryEmbedding,
        q_norm: RMSNorm | None = None,
        k_norm: RMSNorm | None = None,
    ) -> None:
        super().__init__()
        self.name = context.prefix
        self.params = params
        self.rotary = rotary
        self.norms = (q_norm, k_norm)  # in a tuple: not submodules of this layer
        self._eps = q_norm.eps if q_norm is not None else 0.0
        self._prepare = context.kernels.qk_norm_rope_cache

    def forward(
        self, qkv: torch.Tensor, positions: torch.Tensor, step: AttentionContext
    ) -> torch.Tensor:
        """qkv[T, (Hq + 2 Hkv) * D], positions[T] int64 -> [T, Hq * D]; `qkv` may be overwritten."""
        cache = step.caches[self.name]
        group = step.groups[cache.group]
        q_norm, k_norm = self.norms
        q = self._prepare(
            qkv,
            None if q_norm is None else q_norm.weight,
            None if k_norm is None else k_norm.weight,
            self._eps,
            self.rotary.cos_sin,
            positions,
            group.slot_mapping,
            cache.kv,
            self.rotary.dim,
            self.rotary.is_neox,
        )
        return group.backend.forward(q, cache.kv, group.metadata, self.params)
