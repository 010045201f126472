"""MPNet."""

from __future__ import annotations

import math

import torch
from torch import nn

from octavo.models.bert import BERT_NAMES, first_position
from octavo.models.common.encoder import ClassifierNames, Encoder, TextEmbedding
from octavo.models.common.weights import CheckpointLayout
from octavo.models.context import ModelContext

_MAX_DISTANCE = 128  # positions further apart are all alike


class RelativeAttentionBias(nn.Module):
    """A bias per head and bucket of distances; buckets grow with the distance (T5's)."""

    def __init__(self, context: ModelContext) -> None:
        super().__init__()
        arch = context.arch
        num_buckets = int(context.hf_config.get("relative_attention_num_buckets", 32))
        self.weight = context.parameter(num_buckets, arch.num_heads)
        span = context.max_model_len - 1
        distance = torch.arange(-span, span + 1, device=context.device)
        self._buckets = _buckets(distance, num_buckets)

    def forward(self) -> torch.Tensor:
        """[heads, 2 N - 1]; see EncoderAttention."""
        return self.weight[self._buckets].T


class MPNetEncoder(Encoder):
    """BERT with a bias by distance in its attention, alike in all layers (arXiv 2004.09297)."""

    checkpoint = CheckpointLayout(
        names=(
            ("relative_attention_bias", "encoder.relative_attention_bias"),
            *(
                (ours, theirs.replace("attention.output", "attention"))
                for ours, theirs in BERT_NAMES
                if not ours.startswith("self_attn")
            ),
            ("self_attn.q_proj", "attention.attn.q"),
            ("self_attn.k_proj", "attention.attn.k"),
            ("self_attn.v_proj", "attention.attn.v"),
            ("self_attn.o_proj", "attention.attn.o"),
        ),
        prefix="mpnet.",
        buffers=("position_ids",),
    )
    head = ClassifierNames("classifier.dense", "classifier.out_proj")

    def __init__(self, context: ModelContext) -> None:
        super().__init__(context)
        self.relative_attention_bias = RelativeAttentionBias(context)

    def build_embedding(self, context: ModelContext) -> TextEmbedding:
        """See Encoder."""
        return TextEmbedding(context, position_offset=first_position(context), num_texts=0)

    def distance_bias(self) -> torch.Tensor | None:
        """See Encoder."""
        bias: torch.Tensor = self.relative_attention_bias()
        return bias


def _buckets(distance: torch.Tensor, num_buckets: int) -> torch.Tensor:
    """distance[N], key minus query -> bucket[N]: half of them for keys that follow.

    Of each half, half are for single distances, the rest for ranges of growing width.
    """
    half = num_buckets // 2
    exact = half // 2
    far = distance.abs()
    ratio = torch.log(far.clamp(min=1) / exact) / math.log(_MAX_DISTANCE / exact)
    coarse = (exact + (ratio * (half - exact)).long()).clamp(max=half - 1)
    return torch.where(far < exact, far, coarse) + half * (distance > 0)
