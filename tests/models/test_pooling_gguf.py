"""Encoders from GGUF files make what transformers' models make of the same weights."""

import gguf
import numpy as np
import pytest
import torch
import transformers

from octavo import LLM, PoolingParams
from support.tiny_encoder_gguf import PIECES, word_piece, write_bert

TEXTS = ["The unaffable, running cafe!", "a", "", "abc \u4e2d\u6587 zzz", "un-able " * 20]
SHAPE = {
    "vocab_size": len(PIECES),
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 130,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    monkeypatch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "0")


def model_of(kind, **changes):
    torch.manual_seed(3)
    config = {"bert": transformers.BertConfig, "roberta": transformers.RobertaConfig}[kind]
    heads = transformers.AutoModelForSequenceClassification if changes else transformers.AutoModel
    return heads.from_config(config(**SHAPE, **changes), dtype=torch.float32).eval()


def run(path, call, **options):
    llm = LLM(str(path), max_num_seqs=8, **options)
    try:
        return call(llm)
    finally:
        llm.shutdown()


@torch.inference_mode()
def states(model, ids):
    return model(torch.tensor([ids])).last_hidden_state[0]


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [("bert", "MEAN"), ("bert", "CLS"), ("roberta", "MEAN")],
)
def test_embeddings(kind, pooling, tmp_path):
    """Tokenized, pooled and brought to length 1 as the metadata say."""
    theirs = model_of(kind)
    path = write_bert(tmp_path / "m.gguf", theirs, PIECES, pooling=gguf.PoolingType[pooling])
    tokenizer = word_piece(PIECES, lower=True)
    outputs = run(path, lambda llm: llm.embed(TEXTS, use_tqdm=False))
    for text, output in zip(TEXTS, outputs, strict=True):
        ids = tokenizer.encode(text).ids
        assert output.prompt_token_ids == ids
        found = states(theirs, ids)
        vector = found.mean(dim=0) if pooling == "MEAN" else found[0]
        expected = torch.nn.functional.normalize(vector, dim=0).numpy()
        assert np.abs(np.array(output.outputs.embedding) - expected).max() < 1e-5


@pytest.mark.parametrize("quantization", [None, "gguf"])
def test_blocks_of_eight_bits(quantization, tmp_path):
    """Unpacked when they are read, or kept as they are."""
    theirs = model_of("bert")
    path = write_bert(
        tmp_path / "m.gguf",
        theirs,
        PIECES,
        pooling=gguf.PoolingType.MEAN,
        quantize=gguf.GGMLQuantizationType.Q8_0,
    )
    tokenizer = word_piece(PIECES, lower=True)
    options = {"quantization": quantization, "dtype": "float32"}
    outputs = run(path, lambda llm: llm.embed(TEXTS, use_tqdm=False), **options)
    for text, output in zip(TEXTS, outputs, strict=True):
        vector = states(theirs, tokenizer.encode(text).ids).mean(dim=0).numpy()
        cosine = np.dot(output.outputs.embedding, vector) / np.linalg.norm(vector)
        assert cosine > 0.999


def test_a_cross_encoder(tmp_path):
    theirs = model_of("bert", num_labels=1)
    path = write_bert(
        tmp_path / "m.gguf", theirs, PIECES, pooling=gguf.PoolingType.RANK, labels=["LABEL_0"]
    )
    tokenizer = word_piece(PIECES, lower=True)
    raw = PoolingParams(use_activation=False)
    pair = "the cafe", "running un-able"
    (output,) = run(path, lambda llm: llm.score(*pair, pooling_params=raw, use_tqdm=False))
    encoded = tokenizer.encode(*pair)
    with torch.inference_mode():
        logits = theirs(
            torch.tensor([encoded.ids]), token_type_ids=torch.tensor([encoded.type_ids])
        ).logits
    assert output.prompt_token_ids == encoded.ids
    assert output.outputs.score == pytest.approx(float(logits[0, 0]), abs=1e-4)
