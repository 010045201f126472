"""The decoder that Llama-like models share: self-attention, gated MLP, layers, stack, head.

Letters in shapes: T tokens of the step, H hidden size, D head size, R rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import torch
from torch import nn

from octavo.attention.interface import AttentionContext, AttentionParams
from octavo.config.architectures import SLIDING_ATTENTION
from octavo.layers.activation import SiluAndMul
from octavo.layers.attention import Attention
from octavo.layers.embedding import ParallelLMHead, VocabParallelEmbedding
from octavo.layers.linear import (
    MergedColumnParallelLinear,
    QKVParallelLinear,
    RowParallelLinear,
)
from octavo.layers.logits import VocabLogits
from octavo.layers.norm import RMSNorm
from octavo.layers.rotary import RopeSettings, RotaryEmbedding
from octavo.models.common.weights import WeightMap, weight_map
from octavo.models.context import ModelContext


class SelfAttention(nn.Module):
    """Grouped-query attention with rotary positions; names as in Hugging Face's Llama."""

    def __init__(
        self, context: ModelContext, index: int, rotary: RotaryEmbedding, *, qk_norm: bool
    ) -> None:
        super().__init__()
        arch = context.arch
        self.qkv_proj = QKVParallelLinear(
            context.at("qkv_proj"),
            arch.hidden_size,
            arch.head_size,
            arch.num_heads,
            arch.num_kv_heads,
            bias=arch.qkv_bias,
        )
        self.o_proj = RowParallelLinear(
            context.at("o_proj"),
            arch.num_heads * arch.head_size,
            arch.hidden_size,
            bias=arch.o_bias,
        )
        self.q_norm = self.k_norm = None
        if qk_norm:
            self.q_norm = RMSNorm(context, arch.head_size, arch.rms_norm_eps)
            self.k_norm = RMSNorm(context, arch.head_size, arch.rms_norm_eps)
        params = AttentionParams(
            scale=arch.head_size**-0.5,
            num_heads=self.qkv_proj.num_heads,
            num_kv_heads=self.qkv_proj.num_kv_heads,
            head_size=arch.head_size,
            sliding_window=arch.sliding_window
            if arch.layer_types[index] == SLIDING_ATTENTION
            else None,
        )
        self.attn = Attention(context.at("attn"), params, rotary, self.q_norm, self.k_norm)

    def forward(
        self, x: torch.Tensor, positions: torch.Tensor, step: AttentionContext
    ) -> torch.Tensor:
        """x[T, H] -> [T, H]."""
        out: torch.Tensor = self.o_proj(self.attn(self.qkv_proj(x), positions, step))
        return out


class GatedMLP(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, context: ModelContext) -> None:
        super().__init__()
        arch = context.arch
        inner = arch.intermediate_size
        self.gate_up_proj = MergedColumnParallelLinear(
            context.at("gate_up_proj"), arch.hidden_size, [inner, inner], bias=arch.mlp_bias
        )
        self.act_fn = SiluAndMul(context)
        self.down_proj = RowParallelLinear(
            context.at("down_proj"), inner, arch.hidden_size, bias=arch.mlp_bias
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, H] -> [T, H]."""
        out: torch.Tensor = self.down_proj(self.act_fn(self.gate_up_proj(x)))
        return out


class DecoderLayer(nn.Module):
    """Attention and MLP, each added to the residual stream.

    The sum that follows a block belongs to the norm after it, which computes both at once; so a
    layer takes its input already normed and returns its MLP's output not yet added.
    """

    def __init__(self, context: ModelContext, self_attn: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        arch = context.arch
        self.input_layernorm = RMSNorm(context, arch.hidden_size, arch.rms_norm_eps)
        self.self_attn = self_attn
        self.post_attention_layernorm = RMSNorm(context, arch.hidden_size, arch.rms_norm_eps)
        self.mlp = mlp

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        positions: torch.Tensor,
        step: AttentionContext,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x[T, H] after input_layernorm, residual[T, H] -> (what to add, residual)."""
        x = self.self_attn(x, positions, step)
        x, residual = self.post_attention_layernorm.add(x, residual)
        return self.mlp(x), residual


# (context of the layer, its index, rotary) -> layer
LayerBuilder = Callable[[ModelContext, int, RotaryEmbedding], DecoderLayer]


class Decoder(nn.Module):
    """Embedding, layers, final norm."""

    def __init__(self, context: ModelContext, build_layer: LayerBuilder) -> None:
        super().__init__()
        arch = context.arch
        self.embed_tokens = VocabParallelEmbedding(
            context.at("embed_tokens"), arch.vocab_size, arch.hidden_size
        )
        settings = RopeSettings(
            rotary_dim=arch.head_size,
            theta=arch.rope_theta,
            max_position_embeddings=arch.max_position_embeddings,
            max_model_len=context.max_model_len,
            scaling=arch.rope_scaling,
        )
        rotary = RotaryEmbedding(settings, context.device)
        layers = [
            build_layer(context.at(f"layers.{index}"), index, rotary)
            for index in range(arch.num_layers)
        ]
        self.layers = nn.ModuleList(layers)
        self.norm = RMSNorm(context, arch.hidden_size, arch.rms_norm_eps)
        norms = [*(layer.input_layernorm for layer in layers), self.norm]
        self._layers_and_next_norms = list(zip(layers, norms[1:], strict=True))

    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, step: AttentionContext
    ) -> torch.Tensor:
        """input_ids[T], positions[T] -> [T, H]."""
        residual = self.embed_tokens(input_ids)
        first_layer, _ = self._layers_and_next_norms[0]
        x: torch.Tensor = first_layer.input_layernorm(residual)
        for layer, next_norm in self._layers_and_next_norms:
            x, residual = layer(x, residual, positions, step)
            x, residual = next_norm.add(x, residual)
        return x


class DecoderCausalLM(nn.Module):
    """A decoder with an output projection; subclasses say what their layers are."""

    packed_modules: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "qkv_proj": ("q_proj", "k_proj", "v_proj"),
        "gate_up_proj": ("gate_proj", "up_proj"),
    }

    def __init__(self, context: ModelContext) -> None:
        super().__init__()
        arch = context.arch
        self.model = Decoder(context.at("model"), self.build_layer)
        self.lm_head = ParallelLMHead(context.at("lm_head"), arch.vocab_size, arch.hidden_size)
        if arch.tie_word_embeddings:
            self.lm_head.tie(self.model.embed_tokens)
        self.logits = VocabLogits(context, arch.vocab_size)

    def build_layer(
        self, context: ModelContext, index: int, rotary: RotaryEmbedding
    ) -> DecoderLayer:
        """Decoder layer `index`."""
        self_attn = SelfAttention(context.at("self_attn"), index, rotary, qk_norm=False)
        return DecoderLayer(context, self_attn, GatedMLP(context.at("mlp")))

    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, attn: AttentionContext
    ) -> torch.Tensor:
        """input_ids[T], positions[T] int64 -> hidden states [T, H] after the final norm."""
        hidden: torch.Tensor = self.model(input_ids, positions, attn)
        return hidden

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden[R, H] -> [R, vocab_size] float32."""
        logits: torch.Tensor = self.logits(self.lm_head, hidden)
        return logits

    def weight_map(self) -> WeightMap:
        """The checkpoint's tensors, in Hugging Face's names."""
        return weight_map(self, self.packed_modules)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Copy tensors into their, possibly fused, parameters."""
        return self.weight_map().load(weights)
