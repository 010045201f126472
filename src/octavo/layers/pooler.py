"""HeadLinear: the small layers behind pooling, and the functions between and after them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import nn

from octavo.config.pooler import DenseLayer, PoolerConfig, TokenScores
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


class TokenLogits(nn.Module):
    """Logits of a few tokens, by their rows of an output projection; float32, on every rank.

    Those of `scores.two_way` are subtracted. `scale` and `soft_cap`: see VocabLogits.
    """

    def __init__(
        self,
        context: LayerContext,
        vocab_size: int,
        hidden_size: int,
        scores: TokenScores,
        *,
        scale: float = 1.0,
        soft_cap: float | None = None,
    ) -> None:
        """Raises ConfigError for an id that is not in the vocabulary."""
        super().__init__()
        for token_id in scores.token_ids:
            if not 0 <= token_id < vocab_size:
                raise ConfigError(
                    f"scores go by the logit of token {token_id}; the model's vocab_size is "
                    f"{vocab_size}"
                )
        self.weight = _parameter(context, len(scores.token_ids), hidden_size)
        self._scores = scores
        self._vocab_size = vocab_size
        self._scale = scale
        self._soft_cap = soft_cap

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[N, H] float32 -> [N, tokens] float32, of two_way scores [N, 1]."""
        logits = F.linear(x, self.weight) * self._scale
        if self._soft_cap is not None:
            logits = torch.tanh(logits / self._soft_cap) * self._soft_cap
        return logits[:, 1:] - logits[:, :1] if self._scores.two_way else logits

    def shard_shapes(self, param: str) -> list[tuple[int, ...]]:
        """The whole vocabulary."""
        return [(self._vocab_size, self.weight.shape[1])]

    def load_shard(self, param: str, index: int, tensor: torch.Tensor) -> None:
        """Copy the tokens' rows."""
        for row, token_id in enumerate(self._scores.token_ids):
            self.weight.data[row].copy_(tensor[token_id])


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


class HeadNorm(nn.Module):
    """LayerNorm in float32, whole on every rank."""

    def __init__(self, context: LayerContext, size: int, eps: float, *, bias: bool) -> None:
        super().__init__()
        self.weight = _parameter(context, size)
        self.bias = _parameter(context, size) if bias else None
        self._eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[N, H] float32 -> [N, H] float32."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self._eps)


class ScoreHead(nn.Module):
    """Two linear layers and what is between them: logits of a pooled text or of a token."""

    def __init__(
        self,
        first: HeadLinear,
        activation: Function,
        last: HeadLinear,
        norm: HeadNorm | None = None,
    ) -> None:
        """`norm` is behind the activation."""
        super().__init__()
        self.first = first
        self.norm = norm
        self.last = last
        self._activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[N, H] float32 -> [N, labels] float32."""
        x = self._activation(self.first(x))
        if self.norm is not None:
            x = self.norm(x)
        logits: torch.Tensor = self.last(x)
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
