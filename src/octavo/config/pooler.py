"""PoolerConfig: what a pooling model makes of hidden states, as it was decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.types.pooling_params import PoolingTask

# What a model ends in: nothing or dense layers; a score per label for a text; one for each token.
HeadKind = Literal["embed", "classify", "token_classify"]
SeqPooling = Literal["CLS", "LAST", "MEAN"]
TokenPooling = Literal["ALL", "STEP"]
ScoreActivation = Literal["softmax", "sigmoid", "identity"]


@dataclass(frozen=True, kw_only=True)
class DenseLayer:
    """A Dense module of Sentence Transformers, behind the pooling."""

    path: str  # of its folder in the model's
    in_features: int
    out_features: int
    bias: bool
    activation: str  # a key of layers.pooler.DENSE_ACTIVATIONS


@dataclass(frozen=True)
class TokenScores:
    """Scores by the logits that a generator gives a few tokens.

    `two_way`: one score, the second token's logit less the first's; its sigmoid is the second
    token's probability by a softmax over the two.
    """

    token_ids: tuple[int, ...]
    two_way: bool


@dataclass(frozen=True)
class PairTemplate:
    """The texts around a query and a document that make one text of them."""

    before: str
    between: str
    after: str

    def begins(self, text: str) -> bool:
        """Whether a text begins with the template's first line: it is in this form already."""
        line, newline, _ = self.before.partition("\n")
        return bool(newline) and text.startswith(line + newline)


@dataclass(frozen=True, kw_only=True)
class PoolerConfig:
    """How a text becomes a vector or scores.

    `use_activation` and `dimensions` are the defaults of requests.
    """

    head: HeadKind
    seq_pooling_type: SeqPooling
    tok_pooling_type: TokenPooling = "ALL"
    use_activation: bool = True
    activation: ScoreActivation = "softmax"  # of scores
    dense: tuple[DenseLayer, ...] = ()
    embedding_size: int  # elements of an embedding, dimensions aside
    dimensions: int | None = None
    matryoshka: bool = False  # whether fewer dimensions may be asked for,
    matryoshka_dimensions: tuple[int, ...] = ()  # and of these if there are any
    labels: tuple[str, ...] = ()  # of a classifier, in the order of its scores
    # Scores become (logit - logit_mean) / logit_sigma before the activation (Platt scaling).
    logit_mean: float = 0.0
    logit_sigma: float = 1.0
    step_tag_id: int | None = None
    returned_token_ids: tuple[int, ...] | None = None
    token_scores: TokenScores | None = None  # None: a classifier has a layer for its scores
    pair_template: PairTemplate | None = None
    lower_case: bool = False  # texts are brought to lower case before they are tokenized

    @property
    def tasks(self) -> tuple[PoolingTask, ...]:
        """What requests may ask for; the first is the default."""
        if self.head == "embed":
            return ("embed", "token_embed")
        return (self.head,)

    @property
    def scores_pairs(self) -> bool:
        """Whether it is a cross-encoder: one score for a pair of texts."""
        return self.head == "classify" and len(self.labels) == 1
