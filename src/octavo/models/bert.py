"""BERT and what has its shape: RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT."""

from __future__ import annotations

import torch

from octavo.models.common.encoder import ClassifierNames, Encoder, TextEmbedding
from octavo.models.common.weights import CheckpointLayout
from octavo.models.context import ModelContext

_EMBEDDING_NAMES = (
    ("embeddings.tokens", "embeddings.word_embeddings"),
    ("embeddings.positions", "embeddings.position_embeddings"),
    ("embeddings.texts", "embeddings.token_type_embeddings"),
    ("embeddings.norm", "embeddings.LayerNorm"),
)
BERT_NAMES = (
    *_EMBEDDING_NAMES,
    ("layers", "encoder.layer"),
    ("self_attn.q_proj", "attention.self.query"),
    ("self_attn.k_proj", "attention.self.key"),
    ("self_attn.v_proj", "attention.self.value"),
    ("self_attn.o_proj", "attention.output.dense"),
    ("attention_norm", "attention.output.LayerNorm"),
    ("mlp.up_proj", "intermediate.dense"),
    ("mlp.down_proj", "output.dense"),
    ("output_norm", "output.LayerNorm"),
)


class BertEncoder(Encoder):
    """Learned positions, and embeddings that tell a pair's texts apart (arXiv 1810.04805)."""

    checkpoint = CheckpointLayout(names=BERT_NAMES, prefix="bert.", buffers=("position_ids",))
    head = ClassifierNames("pooler.dense", "classifier")


class RobertaEncoder(Encoder):
    """BERT whose positions begin behind that of padding (arXiv 1907.11692)."""

    checkpoint = CheckpointLayout(names=BERT_NAMES, prefix="roberta.", buffers=("position_ids",))
    head = ClassifierNames("classifier.dense", "classifier.out_proj")

    def build_embedding(self, context: ModelContext) -> TextEmbedding:
        """See Encoder."""
        return TextEmbedding(
            context,
            position_offset=first_position(context),
            num_texts=int(context.hf_config.get("type_vocab_size", 2)),
        )


class DistilBertEncoder(Encoder):
    """BERT of half the layers, which does not tell a pair's texts apart (arXiv 1910.01108)."""

    checkpoint = CheckpointLayout(
        names=(
            *_EMBEDDING_NAMES,
            ("layers", "transformer.layer"),
            ("self_attn.q_proj", "attention.q_lin"),
            ("self_attn.k_proj", "attention.k_lin"),
            ("self_attn.v_proj", "attention.v_lin"),
            ("self_attn.o_proj", "attention.out_lin"),
            ("attention_norm", "sa_layer_norm"),
            ("mlp.up_proj", "ffn.lin1"),
            ("mlp.down_proj", "ffn.lin2"),
            ("output_norm", "output_layer_norm"),
        ),
        prefix="distilbert.",
    )
    head = ClassifierNames("pre_classifier", "classifier", torch.relu)

    def build_embedding(self, context: ModelContext) -> TextEmbedding:
        """See Encoder."""
        return TextEmbedding(context, position_offset=0, num_texts=0)


def first_position(context: ModelContext) -> int:
    """Where the position of a text's first token is in the table: behind that of padding."""
    padding = context.hf_config.get("pad_token_id")
    return (1 if padding is None else int(padding)) + 1
