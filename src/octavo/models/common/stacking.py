"""StackedLayers: a decoder's layers as one call of the kernels, where those have such a call."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from octavo.attention.interface import AttentionContext, LayerCache
from octavo.kernels.layer_stack import (
    LayerStack,
    MakeLayerStack,
    StackCache,
    StackGroup,
    StackLayer,
    StackNorm,
)
from octavo.layers.activation import SiluAndMul
from octavo.layers.attention import Attention
from octavo.layers.linear import Linear
from octavo.layers.norm import OffsetRMSNorm, RMSNorm
from octavo.layers.quantization.methods.unquantized import UnquantizedLinear
from octavo.models.common.attention import SelfAttention
from octavo.models.common.decoder_layers import AnyLayer, DecoderLayer, NormModule
from octavo.models.common.mlp import GatedMLP


class StackedLayers:
    """Runs all layers of a decoder, with the results that they have one by one."""

    def __init__(self, stack: LayerStack, names: Sequence[str]) -> None:
        """`names` are the layers' keys in AttentionContext.caches."""
        self._stack = stack
        self._names = names
        self._caches: dict[str, LayerCache] | object = None

    def fits(self, step: AttentionContext) -> bool:
        """Whether the kernels can read this step."""
        return self._stack.reads([group.metadata for group in step.groups])

    def __call__(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        positions: torch.Tensor,
        step: AttentionContext,
    ) -> torch.Tensor:
        """x[T, H] normed, residual[T, H], both written over -> what the last norm gives, [T, H].

        It is defined for the tokens that are read.
        """
        if step.caches is not self._caches:
            caches = [step.caches[name] for name in self._names]
            self._stack.place([StackCache(cache.kv, cache.group) for cache in caches])
            self._caches = step.caches
        groups = [StackGroup(group.slot_mapping, group.metadata) for group in step.groups]
        return self._stack(x, residual, positions, groups, step.read)


def stacked(
    make: MakeLayerStack, layers: Sequence[tuple[AnyLayer, NormModule]]
) -> StackedLayers | None:
    """The layers, each with the norm behind it, as one call; None if they are of other kinds.

    Their weights must have been loaded.
    """
    parts = [_parts(layer, next_norm) for layer, next_norm in layers]
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    stack = make([layer for layer, _ in known])
    return None if stack is None else StackedLayers(stack, [name for _, name in known])


def _parts(layer: AnyLayer, next_norm: NormModule) -> tuple[StackLayer, str] | None:
    """The layer's parts and its name, if it computes what StackLayer says and nothing else."""
    if type(layer) is not DecoderLayer:
        return None
    self_attn, mlp = layer.self_attn, layer.mlp
    if type(self_attn) is not SelfAttention or type(mlp) is not GatedMLP:
        return None
    attn, act_fn = self_attn.attn, mlp.act_fn
    linears = (self_attn.qkv_proj, self_attn.o_proj, mlp.gate_up_proj, mlp.down_proj)
    qkv, out, gate_up, down = (_product(linear) for linear in linears)
    mlp_norm, behind = _norm(layer.post_attention_layernorm), _norm(next_norm)
    heads = [_norm(norm) for norm in attn.norms if norm is not None]
    if (
        mlp_norm is None
        or behind is None
        or any(part is None for part in (qkv, out, gate_up, down, *heads))
        or type(act_fn) is not SiluAndMul
        or type(attn) is not Attention
        or attn.params.sinks is not None
        or attn.params.alibi_slopes is not None
    ):
        return None
    q_norm, k_norm = (None if norm is None else _norm(norm) for norm in attn.norms)
    params, rotary = attn.params, attn.rotary
    parts = StackLayer(
        qkv=qkv,
        out=out,
        gate_up=gate_up,
        down=down,
        mlp_norm=mlp_norm,
        next_norm=behind,
        q_norm=q_norm,
        k_norm=k_norm,
        cos_sin=rotary.cos_sin,
        rotary_dim=rotary.dim,
        is_neox=rotary.is_neox,
        num_heads=params.num_heads,
        num_kv_heads=params.num_kv_heads,
        head_size=params.head_size,
        scale=params.scale,
        soft_cap=params.soft_cap,
        window=params.sliding_window,
    )
    return parts, attn.name


def _product(linear: Linear) -> object | None:
    """The prepared product of a layer that no rank shares with another."""
    whole = linear.inputs.size == linear.inputs.full
    method = linear.method
    return method.bound if whole and type(method) is UnquantizedLinear else None


def _norm(norm: NormModule) -> StackNorm | None:
    if type(norm) not in (RMSNorm, OffsetRMSNorm):
        return None
    assert isinstance(norm, RMSNorm)
    return StackNorm(norm.weight, norm.eps)
