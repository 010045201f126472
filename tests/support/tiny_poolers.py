"""Tiny random models that pool, saved by transformers with a tokenizer that knows pairs."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

WORDS = [f"w{index}" for index in range(60)]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "no", "yes"]
VOCAB = len(SPECIALS) + len(WORDS)

ENCODER = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 130,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}
DECODER = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "eos_token_id": 3,
    "bos_token_id": 2,
    "initializer_range": 0.3,
}
CONFIGS = {
    "bert": (transformers.BertConfig, ENCODER),
    "roberta": (transformers.RobertaConfig, ENCODER | {"pad_token_id": 1, "type_vocab_size": 1}),
    "xlm-roberta": (transformers.XLMRobertaConfig, ENCODER | {"pad_token_id": 1}),
    "camembert": (transformers.CamembertConfig, ENCODER | {"pad_token_id": 1}),
    "mpnet": (transformers.MPNetConfig, ENCODER | {"pad_token_id": 1}),
    "distilbert": (
        transformers.DistilBertConfig,
        {
            "vocab_size": VOCAB,
            "dim": 48,
            "hidden_dim": 80,
            "n_layers": 3,
            "n_heads": 4,
            "max_position_embeddings": 130,
            "pad_token_id": 0,
            "initializer_range": 0.3,
        },
    ),
    "modernbert": (
        transformers.ModernBertConfig,
        {key: value for key, value in ENCODER.items() if key != "num_hidden_layers"}
        | {
            "num_hidden_layers": 4,
            "local_attention": 9,
            "cls_token_id": 2,
            "sep_token_id": 3,
            "bos_token_id": 2,
            "eos_token_id": 3,
        },
    ),
    # Every bias there is, a window shorter than most texts, other wavelengths.
    "modernbert-biases": (
        transformers.ModernBertConfig,
        ENCODER
        | {
            "local_attention": 6,
            "norm_bias": True,
            "attention_bias": True,
            "mlp_bias": True,
            "classifier_bias": True,
            "classifier_pooling": "mean",
            "classifier_activation": "silu",
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 300.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
            },
            "bos_token_id": 2,
            "eos_token_id": 3,
        },
    ),
    "llama": (transformers.LlamaConfig, DECODER),
    "qwen2": (transformers.Qwen2Config, DECODER),
    "qwen3": (transformers.Qwen3Config, DECODER | {"tie_word_embeddings": True}),
    "gemma2": (transformers.Gemma2Config, DECODER | {"sliding_window": 32}),
}
ENCODERS = (
    "bert",
    "roberta",
    "xlm-roberta",
    "camembert",
    "mpnet",
    "distilbert",
    "modernbert",
    "modernbert-biases",
)
DECODERS = ("llama", "qwen2", "qwen3", "gemma2")
HEADS = {
    "embed": transformers.AutoModel,
    "classify": transformers.AutoModelForSequenceClassification,
    "token_classify": transformers.AutoModelForTokenClassification,
    "generate": transformers.AutoModelForCausalLM,
}


def save_pooler(
    name: str, folder: Path, head: str = "embed", seed: int = 0, **changes
) -> transformers.PreTrainedModel:
    """Make a model with random weights, save it with a tokenizer; returns transformers' model."""
    config_class, values = CONFIGS[name]
    torch.manual_seed(seed)
    config = config_class(**{**values, **changes})
    model = HEADS[head].from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith("bias"):
                parameter.normal_(0.0, 0.3)
            elif "norm" in key.lower():
                parameter.uniform_(0.5, 1.5)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return model


def save_tokenizer(folder: Path) -> None:
    """Words between blanks; [CLS] a [SEP], and [CLS] a [SEP] b [SEP] with b's type 1."""
    vocab = {token: index for index, token in enumerate([*SPECIALS, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIALS[:4]])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 128}))


def save_sentence_files(
    folder: Path, pooling: dict[str, object], *modules: dict[str, object], **transformer: object
) -> None:
    """Make a saved model one of Sentence Transformers; `modules` are its further modules.json."""
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    start = [
        {
            "idx": index,
            "name": str(index),
            "path": path,
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps([*start, *modules]))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps(transformer))


def ids_of(length: int, seed: int) -> list[int]:
    """Token ids of words."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(len(SPECIALS), VOCAB, (length,), generator=generator).tolist()
