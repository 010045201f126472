"""Models that pool: an encoder, or a decoder without its output projection, and what follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import nn

from octavo.attention.interface import AttentionContext
from octavo.config.pooler import PoolerConfig, TokenScores
from octavo.layers.pooler import Dense, HeadLinear, TokenLogits
from octavo.layers.sharding import ShardedWeights
from octavo.models.common.decoder import DecoderCausalLM
from octavo.models.common.encoder import Encoder, Head
from octavo.models.common.weights import Target, WeightMap, WeightTarget
from octavo.models.context import ModelContext
from octavo.models.interfaces import CausalLM, Model
from octavo.types.errors import ConfigError

# What files of the first years call weight and bias of a LayerNorm.
_OLD_NAMES = ((".gamma", ".weight"), (".beta", ".bias"))
# Beginnings of names that belong to what checkpoints were trained with.
_ENCODER_EXTRAS = (
    "pooler.",
    "cls.",
    "head.",
    "decoder.",
    "lm_head.",
    "vocab_transform.",
    "vocab_layer_norm.",
    "vocab_projector.",
)
_DECODER_EXTRAS = ("lm_head.", "embed_out.", "output.")


@dataclass(frozen=True, eq=False)
class SharedTarget:
    """A tensor that has several places: an embedding whose rows are an output projection's too."""

    places: tuple[Target, ...]
    shape: tuple[int, ...]

    def load(self, tensor: torch.Tensor) -> None:
        """See Target."""
        for place in self.places:
            place.load(tensor)


@dataclass(frozen=True, eq=False)
class PooledWeightMap(WeightMap):
    """A WeightMap for files that name the body with or without its module, and hold more.

    Files of the body alone leave `prefix` out, those of a whole model have it.
    """

    unused: tuple[str, ...] = ()  # beginnings of names to ignore, behind the prefix if it is there

    def canonical(self, name: str) -> str:
        """See WeightMap."""
        for old, new in _OLD_NAMES:
            if name.endswith(old):
                name = name.removesuffix(old) + new
        for spelling in (name, self.prefix + name, name.removeprefix(self.prefix)):
            if spelling in self.targets or spelling in self.tied:
                return spelling
        return name

    def ignores(self, name: str) -> bool:
        """See WeightMap."""
        if name in self.targets:
            return False
        return super().ignores(name) or name.removeprefix(self.prefix).startswith(self.unused)


class PooledModel(nn.Module):
    """A body and what its model ends in; `head` makes embeddings or logits of pooled states."""

    packed_modules: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    unused: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, body: Model, head: nn.Module, names: Mapping[str, nn.Module], prefix: str
    ) -> None:
        """`names`: what checkpoints call the modules of the head; `prefix`: the body."""
        super().__init__()
        self.body = body
        self.head = head
        self._names = names
        self._prefix = prefix

    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, attn: AttentionContext
    ) -> torch.Tensor:
        """input_ids[T], positions[T] int64 -> hidden states [T, H]."""
        return self.body.forward(input_ids, positions, attn)

    def project(self, vectors: torch.Tensor) -> torch.Tensor:
        """See PoolingModel."""
        projected: torch.Tensor = self.head(vectors)
        return projected

    def weight_map(self) -> WeightMap:
        """The checkpoint's tensors; dense layers of Sentence Transformers are apart from them."""
        found = self.body.weight_map()
        targets: dict[str, Target] = dict(found.targets)
        for name, layer in self._names.items():
            for param, value in layer.named_parameters():
                shape = tuple(value.shape)
                if isinstance(layer, ShardedWeights):
                    shape = layer.shard_shapes(param)[0]
                full, target = f"{name}.{param}", WeightTarget(layer, param, 0, shape)
                there = targets.get(full)
                targets[full] = SharedTarget((there, target), shape) if there else target
        return PooledWeightMap(targets, found.tied, self._prefix, found.buffers, unused=self.unused)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Copy tensors into their, possibly fused, parameters."""
        return self.weight_map().load(weights)

    @property
    def dense(self) -> list[Dense]:
        """Dense layers of Sentence Transformers, whose weights come apart from the others."""
        return [module for module in self.head.modules() if isinstance(module, Dense)]


class EncoderPooler(PooledModel):
    """An encoder and its head."""

    unused = _ENCODER_EXTRAS

    def __init__(self, context: ModelContext, pooler: PoolerConfig, body: Encoder) -> None:
        head = (
            Head(_dense_layers(context, pooler), {})
            if pooler.head == "embed"
            else body.build_head(context, pooler.head, len(pooler.labels))
        )
        super().__init__(body, head.module, head.names, body.checkpoint.prefix)


class DecoderPooler(PooledModel):
    """A decoder's hidden states, and the `score` layer of a classifier."""

    unused = _DECODER_EXTRAS

    def __init__(self, context: ModelContext, pooler: PoolerConfig, body: CausalLM) -> None:
        """Raises ConfigError for a model whose output projection can't be left out."""
        module = cast(nn.Module, body)
        if not hasattr(module, "lm_head"):
            raise ConfigError(
                f"{context.arch.architecture} can't be run with runner='pooling': octavo finds no "
                "output projection to leave out"
            )
        head: nn.Module = _dense_layers(context, pooler)
        names: dict[str, nn.Module] = {}
        if pooler.token_scores is not None:
            head, names = _token_logits(context, pooler.token_scores, module)
        elif pooler.head != "embed":
            # transformers gives a bias to those that classify tokens.
            bias = pooler.head == "token_classify"
            head = HeadLinear(context, context.arch.hidden_size, len(pooler.labels), bias=bias)
            names = {"score": head}
        del module.lm_head
        super().__init__(body, head, names, body.weight_map().prefix or "model.")


def _token_logits(
    context: ModelContext, scores: TokenScores, body: nn.Module
) -> tuple[TokenLogits, dict[str, nn.Module]]:
    """What scores by logits of `body`, and the name of the projection whose rows it takes."""
    arch = context.arch
    if not isinstance(body, DecoderCausalLM) or body.lm_head.bias is not None:
        raise ConfigError(
            f"{arch.architecture} can't score by the logits of tokens: octavo finds no plain "
            "output projection in it"
        )
    head = TokenLogits(
        context,
        arch.vocab_size,
        arch.hidden_size,
        scores,
        scale=body.logits_scale(context),
        soft_cap=arch.logits_soft_cap,
    )
    path = "model.embed_tokens" if arch.tie_word_embeddings else "lm_head"
    return head, {body.checkpoint.name(path): head}


def _dense_layers(context: ModelContext, pooler: PoolerConfig) -> nn.Sequential:
    return nn.Sequential(*(Dense(context, layer) for layer in pooler.dense))
