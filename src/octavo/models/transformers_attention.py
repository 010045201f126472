"""octavo's attention as an attention function of transformers, called by the models it builds."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from octavo.attention.interface import AttentionContext, AttentionParams
from octavo.config.kv_specs import attention_layer_name
from octavo.layers.attention import Attention
from octavo.layers.rotary import NoRotary
from octavo.models.context import ModelContext
from octavo.types.errors import ConfigError

NAME = "octavo"  # of the attention function
_ATTRIBUTE = "octavo_attention"  # where a module of transformers finds its LayerAttention


@dataclass(slots=True)
class CurrentStep:
    """The step being computed: modules of transformers hand nothing of ours through."""

    positions: torch.Tensor | None = None
    context: AttentionContext | None = None
    checked: bool = False  # whether the calls of a step have been found to be as expected
    calls: Counter[int] = field(default_factory=Counter)  # of each layer, in the first step


@dataclass(slots=True)
class LayerAttention:
    """One layer: what its attention function is given becomes a call of an Attention."""

    context: ModelContext
    index: int
    step: CurrentStep
    attention: Attention

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, settings: dict[str, Any]
    ) -> torch.Tensor:
        """q[1, Hq, T, D], k[1, Hkv, T, D], v[1, Hkv, T, Dv <= D] -> [1, T, Hq, Dv]."""
        if not self.step.checked:
            self._check_call(q, k, v, settings)
        value_size = v.shape[-1]
        if value_size < q.shape[-1]:
            v = F.pad(v, (0, q.shape[-1] - value_size))
        qkv = torch.cat([part.squeeze(0).transpose(0, 1) for part in (q, k, v)], dim=1)
        assert self.step.positions is not None
        assert self.step.context is not None
        out: torch.Tensor = self.attention(qkv.flatten(1), self.step.positions, self.step.context)
        return out.view(1, q.shape[2], q.shape[1], -1)[..., :value_size]

    def _check_call(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, settings: dict[str, Any]
    ) -> None:
        """Check what was planned from the config against the model itself; take over its scale."""
        params = self.attention.params
        expected = (params.num_heads, params.num_kv_heads, params.head_size)
        found = (q.shape[1], k.shape[1], q.shape[3])
        if found != expected or v.shape[3] > q.shape[3]:
            raise ConfigError(
                f"layer {self.index} computes attention with (heads, KV heads, head size) {found}, "
                f"values of {v.shape[3]}; the model's config led to {expected}: the Transformers "
                "backend can't run this model"
            )
        self._check_window(settings.get("sliding_window"))
        for name, value in settings.items():
            if value is not None and name not in _KNOWN:
                raise ConfigError(
                    f"attention of layer {self.index} takes {name}, which the Transformers "
                    "backend does not support"
                )
        scale = settings.get("scaling")
        self.attention.params = dataclasses.replace(
            params,
            scale=params.scale if scale is None else float(scale),
            soft_cap=settings.get("softcap"),
        )
        self.step.calls[self.index] += 1

    def _check_window(self, window: int | None) -> None:
        """A layer's keys are given up by the window that the config led to."""
        planned = self.context.arch.window(self.index)
        listed = bool(self.context.hf_config.get("layer_types"))
        if window == planned or (window is None and listed):
            return
        kind = self.context.arch.layer_types[self.index]
        raise ConfigError(
            f"layer {self.index} has sliding_window={window}; its kind in the config, {kind}, led "
            f"to {planned}; set the right one with --hf-overrides "
            "'{\"sliding_window\": ...}'"
        )


# What models pass besides; the others would change the result.
_KNOWN = {
    "scaling",
    "sliding_window",
    "softcap",
    "dropout",
    "is_causal",
    "position_ids",
    "position_embeddings",
    "use_cache",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "return_dict",
    "cache_position",
    "layer_idx",
    "deterministic",
    "cu_seq_lens_q",
    "logits_to_keep",
}


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """The attention function: no mask is used, rows are told apart by the step's context."""
    if not getattr(module, "is_causal", True) or settings.get("is_causal") is False:
        raise ConfigError(
            f"{type(module).__name__} of transformers attends to later tokens, too; octavo "
            "generates with causal models"
        )
    layer: LayerAttention = getattr(module, _ATTRIBUTE)
    return layer(query, key, value, settings), None


def attach(model: nn.Module, context: ModelContext, step: CurrentStep) -> nn.ModuleList:
    """Give every attention module of a model its LayerAttention; returns octavo's layers."""
    arch, ranks = context.arch, context.group.size
    rotary = NoRotary(context.max_model_len, context.device)
    layers = nn.ModuleList(
        Attention(
            context.at(attention_layer_name(index)),
            AttentionParams(
                scale=arch.attention_scale,
                num_heads=arch.num_heads // ranks,
                num_kv_heads=arch.num_kv_heads // ranks,
                head_size=arch.head_size,
                sliding_window=arch.window(index),
                soft_cap=arch.attention_soft_cap,
            ),
            rotary,
        )
        for index in range(arch.num_layers)
    )
    for module in model.modules():
        index = getattr(module, "layer_idx", None)
        if isinstance(index, int) and 0 <= index < arch.num_layers:
            attention = cast("Attention", layers[index])
            setattr(module, _ATTRIBUTE, LayerAttention(context, index, step, attention))
    return layers


ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
