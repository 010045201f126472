"""The decoder that language models share: embedding, layers, final norm, output projection.

Letters in shapes: T tokens of the step, H hidden size, R rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import nn

from octavo.attention.interface import AttentionContext
from octavo.config.architectures import SLIDING_ATTENTION, ModelArch
from octavo.config.rope import Rope
from octavo.layers.embedding import ParallelLMHead, VocabParallelEmbedding
from octavo.layers.logits import VocabLogits
from octavo.layers.norm import RMSNorm
from octavo.layers.rotary import NoRotary, RopeSettings, RotaryEmbedding
from octavo.models.common.attention import SelfAttention
from octavo.models.common.decoder_layers import AnyLayer, DecoderLayer, NormBuilder, NormModule
from octavo.models.common.mlp import GatedMLP
from octavo.models.common.stacking import StackedLayers, stacked
from octavo.models.common.weights import CheckpointLayout, WeightMap, weight_map
from octavo.models.context import ModelContext

# (context of the layer, its index, rotary) -> layer
LayerBuilder = Callable[[ModelContext, int, RotaryEmbedding], AnyLayer]


class Decoder(nn.Module):
    """Embedding, layers, final norm; subclasses embed in other ways."""

    def __init__(
        self,
        context: ModelContext,
        build_layer: LayerBuilder,
        build_norm: NormBuilder,
        *,
        is_neox: bool,
    ) -> None:
        super().__init__()
        arch = context.arch
        self.embed_tokens = VocabParallelEmbedding(
            context.at("embed_tokens"), arch.vocab_size, arch.hidden_size
        )
        rotary = rotary_of_layers(context, is_neox=is_neox)
        layers = [
            build_layer(context.at(f"layers.{index}"), index, rotary[index])
            for index in range(arch.num_layers)
        ]
        self.layers = nn.ModuleList(layers)
        self.norm: NormModule = build_norm(context)
        norms: list[NormModule] = [*(layer.input_layernorm for layer in layers), self.norm]
        self._layers_and_next_norms = list(zip(layers, norms[1:], strict=True))
        self._make_stack = context.kernels.layer_stack
        self._stack: StackedLayers | None = None

    def embed(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """input_ids[T], positions[T] -> the residual stream before the first layer, [T, H]."""
        hidden: torch.Tensor = self.embed_tokens(input_ids)
        return hidden

    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, step: AttentionContext
    ) -> torch.Tensor:
        """input_ids[T], positions[T] -> [T, H]."""
        residual = self.embed(input_ids, positions)
        first_layer, _ = self._layers_and_next_norms[0]
        x: torch.Tensor = first_layer.input_layernorm(residual)
        if self._stack is not None and self._stack.fits(step):
            return self._stack(x, residual, positions, step)
        for layer, next_norm in self._layers_and_next_norms:
            x, residual = layer(x, residual, positions, step)
            x, residual = next_norm.add(x, residual)
        return x

    def process_after_load(self) -> None:
        """Let the kernels take the layers as one, if they can; called when those are ready."""
        self._stack = stacked(self._make_stack, self._layers_and_next_norms)

    def forward_with_states(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        step: AttentionContext,
        layers: Sequence[int],
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """What `forward` returns, and the stream before the layers wanted, each [T, H].

        The stream after the last layer is given as the final norm leaves it.
        """
        states: dict[int, torch.Tensor] = {}
        residual = self.embed(input_ids, positions)
        first_layer, _ = self._layers_and_next_norms[0]
        x: torch.Tensor = first_layer.input_layernorm(residual)
        for index, (layer, next_norm) in enumerate(self._layers_and_next_norms):
            if index in layers:
                states[index] = residual.clone()  # kernels may add to it in place
            x, residual = layer(x, residual, positions, step)
            x, residual = next_norm.add(x, residual)
        states[len(self._layers_and_next_norms)] = x
        return x, states


def rotary_of_layers(context: ModelContext, *, is_neox: bool) -> list[RotaryEmbedding]:
    """The rotary embedding of every layer; layers of one setting share it."""
    arch = context.arch
    tables: dict[str, RotaryEmbedding] = {}

    def table(rotates: bool, rope: Rope) -> RotaryEmbedding:
        key = str(rope) if rotates else ""
        if key not in tables:
            tables[key] = (
                RotaryEmbedding(rope_settings(context, rope), context.device, is_neox)
                if rotates
                else NoRotary(context.max_model_len, context.device)
            )
        return tables[key]

    return [
        table(rotates, arch.sliding_rope if kind == SLIDING_ATTENTION else arch.rope)
        for rotates, kind in zip(arch.rotates, arch.layer_types, strict=True)
    ]


def rope_settings(context: ModelContext, rope: Rope) -> RopeSettings:
    """What the table of angles of a kind of layer is made of."""
    arch: ModelArch = context.arch
    return RopeSettings(
        rotary_dim=int(arch.head_size * rope.partial),
        theta=rope.theta,
        max_position_embeddings=arch.max_position_embeddings,
        max_model_len=context.max_model_len,
        scaling=rope.scaling,
    )


class DecoderCausalLM(nn.Module):
    """A decoder with an output projection; subclasses say what their layers are."""

    packed_modules: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "qkv_proj": ("q_proj", "k_proj", "v_proj"),
        "gate_up_proj": ("gate_proj", "up_proj"),
    }
    checkpoint: ClassVar[CheckpointLayout] = CheckpointLayout()
    decoder: ClassVar[type[Decoder]] = Decoder
    rope_is_neox: ClassVar[bool] = True

    def __init__(self, context: ModelContext) -> None:
        super().__init__()
        arch = context.arch
        self.model = self.decoder(
            context.at("model"), self.build_layer, self.build_norm, is_neox=self.rope_is_neox
        )
        self.lm_head = ParallelLMHead(context.at("lm_head"), arch.vocab_size, arch.hidden_size)
        if arch.tie_word_embeddings:
            self.lm_head.tie(self.model.embed_tokens)
        self.logits = VocabLogits(
            context,
            arch.vocab_size,
            scale=self.logits_scale(context),
            soft_cap=arch.logits_soft_cap,
        )

    def build_layer(self, context: ModelContext, index: int, rotary: RotaryEmbedding) -> AnyLayer:
        """Decoder layer `index`."""
        self_attn = SelfAttention(context.at("self_attn"), index, rotary)
        return DecoderLayer(context, self_attn, GatedMLP(context.at("mlp")), self.build_norm)

    def build_norm(self, context: ModelContext) -> NormModule:
        """A norm of the hidden size."""
        return RMSNorm(context, context.arch.hidden_size, context.arch.norm_eps)

    def logits_scale(self, context: ModelContext) -> float:
        """What logits are multiplied by."""
        return 1.0

    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, attn: AttentionContext
    ) -> torch.Tensor:
        """input_ids[T], positions[T] int64 -> hidden states [T, H] after the final norm."""
        hidden: torch.Tensor = self.model(input_ids, positions, attn)
        return hidden

    def forward_with_states(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        attn: AttentionContext,
        layers: Sequence[int],
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """See CausalLM."""
        return self.model.forward_with_states(input_ids, positions, attn, layers)

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden[R, H] -> [R, vocab_size] float32."""
        logits: torch.Tensor = self.logits(self.lm_head, hidden)
        return logits

    def weight_map(self) -> WeightMap:
        """The checkpoint's tensors, in Hugging Face's names."""
        return weight_map(self, self.packed_modules, self.checkpoint)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Copy tensors into their, possibly fused, parameters."""
        return self.weight_map().load(weights)
