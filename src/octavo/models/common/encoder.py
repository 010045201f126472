"""The encoder that BERT's descendants share: embeddings, layers with their norms behind the sums.

Letters in shapes: T tokens of the step, H hidden size, D head size, C labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from octavo.attention.interface import AttentionContext, EncoderParams
from octavo.config.pooler import HeadKind
from octavo.layers.embedding import LearnedPositions, VocabParallelEmbedding
from octavo.layers.linear import QKVParallelLinear, RowParallelLinear
from octavo.layers.pooler import HeadLinear, ScoreHead
from octavo.layers.rotary import RotaryEmbedding
from octavo.layers.text import SumNorm, rotate_texts, text_activation
from octavo.models.common.decoder import rotary_of_layers
from octavo.models.common.mlp import GatedMLP, PlainMLP
from octavo.models.common.weights import CheckpointLayout, WeightMap, weight_map
from octavo.models.context import ModelContext
from octavo.types.pooling_params import SECOND_TEXT, TOKEN_ID_MASK


@dataclass(frozen=True)
class ClassifierNames:
    """What checkpoints call the two linear layers that score a text by its first token."""

    first: str
    last: str
    activation: Callable[[torch.Tensor], torch.Tensor] = torch.tanh  # between them


@dataclass(frozen=True)
class Head:
    """What a classifier's vectors go through, and what checkpoints call its modules."""

    module: nn.Module  # vectors[N, H] float32 -> logits[N, C] float32
    names: Mapping[str, nn.Module]


class EncoderAttentionLayer(nn.Module):
    """Attention within texts, its projections around it."""

    def __init__(self, context: ModelContext, window: int | None = None) -> None:
        """`window`: the tokens seen on either side, one's own included; None: the whole text."""
        super().__init__()
        arch = context.arch
        heads, size = arch.num_heads, arch.head_size
        self.qkv_proj = QKVParallelLinear(
            context.at("qkv_proj"), arch.hidden_size, size, heads, heads, bias=arch.qkv_bias
        )
        self.o_proj = RowParallelLinear(
            context.at("o_proj"), heads * size, arch.hidden_size, bias=arch.o_bias
        )
        self._params = EncoderParams(
            scale=arch.attention_scale,
            num_heads=self.qkv_proj.num_heads,
            head_size=size,
            reach=None if window is None else window - 1,
        )

    def forward(
        self,
        x: torch.Tensor,
        step: AttentionContext,
        distance_bias: torch.Tensor | None = None,
        angles: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """x[T, H] -> [T, H].

        `distance_bias`: see EncoderAttention; angles[T, D]: the rows of a RotaryEmbedding's table.
        """
        assert step.encoder is not None, "an encoder runs in steps that are made for one"
        qkv = self.qkv_proj(x)
        if angles is not None:
            rotate_texts(qkv, angles, self._params.head_size)
        attended = step.encoder(qkv, self._params, distance_bias)
        out: torch.Tensor = self.o_proj(attended)
        return out


class EncoderLayer(nn.Module):
    """Attention and MLP, each followed by a norm of its sum with what went in."""

    def __init__(self, context: ModelContext) -> None:
        super().__init__()
        arch = context.arch
        self.self_attn = EncoderAttentionLayer(context.at("self_attn"))
        self.attention_norm = SumNorm(context, arch.hidden_size, arch.norm_eps)
        self.mlp = (
            GatedMLP(context.at("mlp"))
            if arch.gated_mlp
            else PlainMLP(context.at("mlp"), text_activation(context, arch.hidden_act))
        )
        self.output_norm = SumNorm(context, arch.hidden_size, arch.norm_eps)

    def forward(
        self,
        x: torch.Tensor,
        step: AttentionContext,
        distance_bias: torch.Tensor | None = None,
        angles: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """x[T, H] -> [T, H]; see EncoderAttentionLayer."""
        x = self.attention_norm.of_sum(self.self_attn(x, step, distance_bias, angles), x)
        return self.output_norm.of_sum(self.mlp(x), x)


class TextEmbedding(nn.Module):
    """Token, position and, in most families, which text of a pair: their sum, normed."""

    def __init__(self, context: ModelContext, *, position_offset: int, num_texts: int) -> None:
        """Position 0 is row `position_offset` of the table; `num_texts` 0: pairs don't count."""
        super().__init__()
        arch = context.arch
        self.tokens = VocabParallelEmbedding(
            context.at("tokens"), arch.vocab_size, arch.hidden_size
        )
        self.positions = LearnedPositions(
            context, arch.max_position_embeddings - position_offset, arch.hidden_size,
            position_offset,
        )  # fmt: skip
        self.texts = LearnedPositions(context, num_texts, arch.hidden_size) if num_texts else None
        self.norm = SumNorm(context, arch.hidden_size, arch.norm_eps)

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """input_ids[T], SECOND_TEXT set where it holds, positions[T] int64 -> [T, H]."""
        x: torch.Tensor = self.tokens(input_ids & TOKEN_ID_MASK)
        if self.texts is not None:
            # A model of one type of text gives it to all.
            last = self.texts.weight.shape[0] - 1
            x = x + self.texts(((input_ids & SECOND_TEXT) > 0).long().clamp_(max=last))
        return self.norm.of_sum(x, self.positions(positions))


class Encoder(nn.Module):
    """Embedding and layers; subclasses say what they are and what their checkpoints call them."""

    packed_modules: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "qkv_proj": ("q_proj", "k_proj", "v_proj"),
        "gate_up_proj": ("gate_proj", "up_proj"),
    }
    checkpoint: ClassVar[CheckpointLayout]
    head: ClassVar[ClassifierNames]

    def __init__(self, context: ModelContext) -> None:
        super().__init__()
        arch = context.arch
        self.embeddings = self.build_embedding(context)
        self.layers = nn.ModuleList(
            self.build_layer(context.at(f"layers.{index}"), index)
            for index in range(arch.num_layers)
        )
        self._rotary: list[RotaryEmbedding] | None = None
        if any(arch.rotates):
            self._rotary = rotary_of_layers(context, is_neox=True)

    def build_embedding(self, context: ModelContext) -> nn.Module:
        """What the layers begin with: (input_ids[T], positions[T]) -> [T, H]."""
        num_texts = int(context.hf_config.get("type_vocab_size", 2))
        return TextEmbedding(context, position_offset=0, num_texts=num_texts)

    def build_layer(self, context: ModelContext, index: int) -> nn.Module:
        """Layer `index`, called as an EncoderLayer is."""
        return EncoderLayer(context)

    def build_head(self, context: ModelContext, kind: HeadKind, num_labels: int) -> Head:
        """What a classifier ends in: two linear layers score a text, one scores a token."""
        hidden = context.arch.hidden_size
        last = HeadLinear(context, hidden, num_labels, bias=True)
        if kind == "token_classify":
            return Head(last, {"classifier": last})
        first = HeadLinear(context, hidden, hidden, bias=True)
        in_body = self.head.first.startswith("pooler.")
        name = (self.checkpoint.prefix if in_body else "") + self.head.first
        module = ScoreHead(first, self.head.activation, last)
        return Head(module, {name: first, self.head.last: last})

    def distance_bias(self) -> torch.Tensor | None:
        """What attention adds to its scores; see EncoderAttention."""
        return None

    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, attn: AttentionContext
    ) -> torch.Tensor:
        """input_ids[T], positions[T] int64 -> hidden states [T, H]."""
        x: torch.Tensor = self.embeddings(input_ids, positions)
        bias = self.distance_bias()
        angles = self._angles(positions)
        for layer, rows in zip(self.layers, angles, strict=True):
            x = layer(x, attn, bias, rows)
        return x

    def weight_map(self) -> WeightMap:
        """The checkpoint's tensors, in Hugging Face's names."""
        return weight_map(self, self.packed_modules, self.checkpoint)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Copy tensors into their, possibly fused, parameters."""
        return self.weight_map().load(weights)

    def _angles(self, positions: torch.Tensor) -> list[torch.Tensor | None]:
        """Per layer: the angles of every token, [T, D]; layers of one setting share them."""
        if self._rotary is None:
            return [None] * len(self.layers)
        distinct = {id(rotary): rotary.cos_sin[positions] for rotary in set(self._rotary)}
        return [distinct[id(rotary)] for rotary in self._rotary]
