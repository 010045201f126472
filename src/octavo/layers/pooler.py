"""HeadLinear: the small layers behind pooling, and the functions between and after them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import nn

from octavo.config.pooler import DenseLayer, PoolerConfig
from octavo.layers.context import LayerContext
from octavo.types.errors import ConfigError

Function = Callable[[torch.Tensor], torch.Tensor]


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


# torch.nn's names, as Sentence Transformers writes them.
DENSE_ACTIVATIONS: Mapping[str, Function] = {
    "Identity": _same,
    "Tanh": torch.tanh,
    "ReLU": torch.relu,
    "GELU": F.gelu,
    "Sigmoid": torch.sigmoid,
}
_SCORE_ACTIVATIONS: Mapping[str, Function] = {
    "softmax": lambda logits: torch.softmax(logits, dim=-1),
    "sigmoid": torch.sigmoid,
    "identity": _same,
}


class HeadLinear(nn.Module):
    """x W^T + b in float32, whole on every rank."""

    def __init__(
        self, context: LayerContext, in_features: int, out_features: int, *, bias: bool
    ) -> None:
        super().__init__()
        self.weight = _parameter(context, out_features, in_features)
        self.bias = _parameter(context, out_features) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[N, in] float32 -> [N, out] float32."""
        return F.linear(x, self.weight, self.bias)


class Dense(nn.Module):
    """A Dense module of Sentence Transformers; `path` is its folder in the model's."""

    def __init__(self, context: LayerContext, layer: DenseLayer) -> None:
        """Raises ConfigError for an activation that is not known."""
        super().__init__()
        if layer.activation not in DENSE_ACTIVATIONS:
            raise ConfigError(
                f"{layer.path}/config.json of the model has the activation "
                f"{layer.activation!r}; octavo has {', '.join(DENSE_ACTIVATIONS)}"
            )
        self.path = layer.path
        self.linear = HeadLinear(context, layer.in_features, layer.out_features, bias=layer.bias)
        self._activation = DENSE_ACTIVATIONS[layer.activation]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[N, in] float32 -> [N, out] float32."""
        return self._activation(self.linear(x))


class ScoreHead(nn.Module):
    """Two linear layers and what is between them: logits of a text by its first token."""

    def __init__(self, first: HeadLinear, activation: Function, last: HeadLinear) -> None:
        super().__init__()
        self.first = first
        self.last = last
        self._activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[N, H] float32 -> [N, labels] float32."""
        logits: torch.Tensor = self.last(self._activation(self.first(x)))
        return logits


def finish_embeddings(
    vectors: torch.Tensor, dimensions: int | None, normalize: bool
) -> torch.Tensor:
    """vectors[..., E] -> their first `dimensions` elements, of length 1 with `normalize`."""
    if dimensions is not None:
        vectors = vectors[..., :dimensions]
    return F.normalize(vectors, dim=-1) if normalize else vectors


def finish_scores(logits: torch.Tensor, pooler: PoolerConfig, activate: bool) -> torch.Tensor:
    """logits[..., labels] -> scores: calibrated, and with `activate` brought to their range."""
    if pooler.logit_mean or pooler.logit_sigma != 1.0:
        logits = (logits - pooler.logit_mean) / pooler.logit_sigma
    return _SCORE_ACTIVATIONS[pooler.activation](logits) if activate else logits


def _parameter(context: LayerContext, *size: int) -> nn.Parameter:
    data = torch.empty(size, dtype=torch.float32, device=context.device)
    return nn.Parameter(data, requires_grad=False)
