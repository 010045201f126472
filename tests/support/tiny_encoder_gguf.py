"""Tiny BERTs as GGUF files, written with the gguf package, and the tokenizers behind them."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("the", "un", "##aff", "##able", "runn", "##ing", "a", "b", "c", "##a", "##b", "##c"),
    *(".", ",", "!", "-", "\u4e2d", "\u6587", "e", "##e", "##x", "caf", "[unused1]"),
]
_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SPACE = "\u2581"


def word_piece(pieces: list[str], *, lower: bool) -> Tokenizer:
    """BERT's tokenizer over a vocabulary."""
    vocab = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(list(_SPECIALS))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def write_bert(
    path: Path,
    model: transformers.PreTrainedModel,
    pieces: list[str],
    *,
    pooling: gguf.PoolingType | None = None,
    quantize: gguf.GGMLQuantizationType | None = None,
    labels: list[str] | None = None,
) -> Path:
    """A model of BERT's kind as llama.cpp's converter writes it.

    Words begin with a mark, and the table of positions has no rows for padding.
    """
    config = model.config
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_eps(config.layer_norm_eps)
    writer.add_causal_attention(False)
    if pooling is not None:
        writer.add_pooling_type(pooling)
    if labels:
        writer.add_classifier_output_labels(labels)
    kinds = [3 if piece in _SPECIALS else 1 for piece in pieces]
    marked = [
        piece if kind == 3 else piece[2:] if piece.startswith("##") else _SPACE + piece
        for piece, kind in zip(pieces, kinds, strict=True)
    ]
    writer.add_tokenizer_model("bert")
    writer.add_token_list(marked)
    writer.add_token_types(kinds)
    writer.add_unk_token_id(1)
    writer.add_sep_token_id(3)
    writer.add_pad_token_id(0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, config.num_hidden_layers)
    for name, value in model.state_dict().items():
        name = name.removeprefix("bert.").removeprefix("roberta.")
        if name.endswith("position_ids") or (name.startswith("pooler") and not labels):
            continue
        array = value.numpy()
        if "position_embeddings" in name and config.model_type == "roberta":
            array = array[config.pad_token_id + 1 :]
        renamed = {"pooler.dense": "classifier.dense", "classifier": "classifier.out_proj"}
        stem, _, suffix = name.rpartition(".")
        found = names.get_name(renamed.get(stem, stem))
        assert found is not None, name
        if quantize is not None and array.ndim == 2 and array.shape[1] % 32 == 0:
            data = gguf.quants.quantize(array, quantize)
            writer.add_tensor(f"{found}.{suffix}", data, raw_dtype=quantize)
        else:
            writer.add_tensor(f"{found}.{suffix}", np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
