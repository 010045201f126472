"""Pooled states, scores and logits equal transformers' in float32, for every kind of model."""

import contextlib
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from octavo import LLM, PoolingParams
from octavo.types.errors import ConfigError, RequestError
from support.tiny_poolers import DECODERS, ENCODERS, ids_of, save_pooler, save_sentence_files

TOLERANCE = 2e-5
LENGTHS = (1, 2, 3, 17, 18, 40, 5, 90, 31, 2)
PROMPTS = [ids_of(length, seed) for seed, length in enumerate(LENGTHS)]


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    monkeypatch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "0")


@contextlib.contextmanager
def running(folder, **options):
    llm = LLM(str(folder), **{"max_num_seqs": 8, **options})
    try:
        yield llm
    finally:
        llm.shutdown()


@torch.inference_mode()
def reference_states(model, prompt) -> np.ndarray:
    return model(torch.tensor([prompt])).last_hidden_state[0].numpy()


@torch.inference_mode()
def reference_logits(model, prompt, **inputs) -> np.ndarray:
    return model(torch.tensor([prompt]), **inputs).logits[0].numpy()


def pooled(states: np.ndarray, kind: str) -> np.ndarray:
    return {"CLS": states[0], "LAST": states[-1], "MEAN": states.mean(axis=0)}[kind]


def assert_close(ours, theirs) -> None:
    assert ours.shape == theirs.shape
    scale = max(1.0, float(np.abs(theirs).max()))
    assert float(np.abs(ours - theirs).max()) <= TOLERANCE * scale


@pytest.mark.parametrize("name", ENCODERS)
def test_encoder_embeddings(name, tmp_path):
    theirs = save_pooler(name, tmp_path)
    with running(tmp_path, pooler_config={"pooling_type": "MEAN"}) as llm:
        raw = PoolingParams(use_activation=False)
        outputs = llm.encode(PROMPTS, raw, use_tqdm=False)
        vectors = llm.embed(PROMPTS, use_tqdm=False)
        tokens = llm.encode(PROMPTS, raw, pooling_task="token_embed", use_tqdm=False)
    for prompt, output, vector, states in zip(PROMPTS, outputs, vectors, tokens, strict=True):
        expected = reference_states(theirs, prompt)
        assert_close(states.outputs.data, expected)
        assert_close(output.outputs.data, expected.mean(axis=0))
        embedding = np.array(vector.outputs.embedding)
        assert abs(np.linalg.norm(embedding) - 1) < 1e-6
        assert_close(embedding * np.linalg.norm(output.outputs.data), output.outputs.data)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "LAST") for name in DECODERS),
        ("llama", "MEAN"),
        ("gemma2", "MEAN"),
        ("qwen3", "CLS"),
    ],
)
def test_decoder_embeddings_in_parts(name, kind, tmp_path):
    """Prompts are cut into parts of up to 16 tokens, and of the 40 common ones some are cached."""
    theirs = save_pooler(name, tmp_path, "generate").model
    shared = ids_of(40, 99)
    prompts = [*PROMPTS, [*shared, 7], [*shared, 8, 9], shared]
    options = {"max_num_batched_tokens": 16, "pooler_config": {"pooling_type": kind}}
    with running(tmp_path, runner="pooling", **options) as llm:
        raw = PoolingParams(use_activation=False)
        outputs = llm.encode(prompts, raw, use_tqdm=False)
        again = llm.encode(prompts[-3:], raw, use_tqdm=False)
        states = llm.encode(prompts[-1], raw, pooling_task="token_embed", use_tqdm=False)
    for prompt, output in zip([*prompts, *prompts[-3:]], [*outputs, *again], strict=True):
        assert_close(output.outputs.data, pooled(reference_states(theirs, prompt), kind))
    assert_close(states[0].outputs.data, reference_states(theirs, shared))
    assert all((o.num_cached_tokens or 0) > 0 for o in again) == (kind == "LAST")


def test_a_checkpoint_of_the_body_alone(tmp_path):
    """ "Qwen3Model": names without "model.", pooled without being asked to."""
    theirs = save_pooler("qwen3", tmp_path)
    with running(tmp_path) as llm:
        outputs = llm.encode(PROMPTS, PoolingParams(use_activation=False), use_tqdm=False)
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        assert_close(output.outputs.data, reference_states(theirs, prompt)[-1])


@pytest.mark.parametrize("name", [*ENCODERS, "llama", "qwen3"])
def test_text_classification(name, tmp_path):
    theirs = save_pooler(name, tmp_path, "classify", num_labels=3)
    with running(tmp_path) as llm:
        raw = llm.encode(PROMPTS, PoolingParams(use_activation=False), use_tqdm=False)
        outputs = llm.classify(PROMPTS, use_tqdm=False)
    for prompt, logits, output in zip(PROMPTS, raw, outputs, strict=True):
        expected = reference_logits(theirs, prompt)
        assert_close(logits.outputs.data, expected)
        softmax = torch.softmax(torch.tensor(expected), dim=-1).numpy()
        assert_close(np.array(output.outputs.probs), softmax)


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "modernbert-biases", "qwen3"])
def test_token_classification(name, tmp_path):
    theirs = save_pooler(name, tmp_path, "token_classify", num_labels=5)
    with running(tmp_path) as llm:
        outputs = llm.encode(PROMPTS, PoolingParams(use_activation=False), use_tqdm=False)
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        assert_close(output.outputs.data, reference_logits(theirs, prompt))


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "modernbert", "qwen3"])
def test_cross_encoder(name, tmp_path):
    """A pair is read at once, and BERT is told which text a token is of."""
    theirs = save_pooler(name, tmp_path, "classify", num_labels=1)
    query, documents = "w1 w2 w3", ["w4 w5 w6 w7", "w8", "w1 w2 w3 w4 w5"]
    with running(tmp_path) as llm:
        scores = [each.outputs.score for each in llm.score(query, documents, use_tqdm=False)]
        raw = PoolingParams(use_activation=False)
        logits = llm.score(query, documents, pooling_params=raw, use_tqdm=False)
        tokenizer = llm.get_tokenizer()
        for document, score, logit in zip(documents, scores, logits, strict=True):
            ids, second = tokenizer.encode_pair(query, document)
            kinds = torch.tensor([[int(at >= second) for at in range(len(ids))]])
            inputs = {"token_type_ids": kinds} if name == "bert" else {}
            expected = float(reference_logits(theirs, ids, **inputs)[0])
            assert logit.outputs.score == pytest.approx(expected, abs=1e-4)
            assert score == pytest.approx(1 / (1 + np.exp(-expected)), abs=1e-5)
            assert logit.prompt_token_ids == ids


TEMPLATE = "w1 {query} w2 {document} w3 w4"


@torch.inference_mode()
def token_logits(model, ids, tokens):
    return model(torch.tensor([ids])).logits[0, -1, tokens].double().numpy()


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("qwen3", {"tie_word_embeddings": True}),
        ("qwen3", {"tie_word_embeddings": False}),
        ("gemma2", {"final_logit_softcapping": 2.0}),  # tied, soft-capped
        ("llama", {}),
    ],
)
def test_scores_by_the_logits_of_two_tokens(name, changes, tmp_path):
    """As Qwen3-Reranker is published: the softmax over "no" and "yes" of a generator's logits."""
    theirs = save_pooler(name, tmp_path, "generate", **changes)
    overrides = {
        "architectures": [
            type(theirs).__name__.replace("ForCausalLM", "ForSequenceClassification")
        ],
        "classifier_from_token": ["no", "yes"],
        "is_original_qwen3_reranker": True,
    }
    query, documents = "w5 w6", ["w7 w8 w9", "w1", " ".join(["w11", "w12"] * 30)]
    options = {"hf_overrides": overrides, "pooler_config": {"pair_template": TEMPLATE}}
    with running(tmp_path, max_num_batched_tokens=16, **options) as llm:
        outputs = llm.score(query, documents, use_tqdm=False)
        labels = llm.classify(["w1 w2"], use_tqdm=False)[0].outputs.probs
        tokenizer = llm.get_tokenizer()
    for document, output in zip(documents, outputs, strict=True):
        text = TEMPLATE.format(query=query, document=document)
        assert output.prompt_token_ids == tokenizer.encode(text)
        no, yes = token_logits(theirs, output.prompt_token_ids, [4, 5])
        assert output.outputs.score == pytest.approx(1 / (1 + np.exp(no - yes)), abs=2e-6)
    assert len(labels) == 1


def test_scores_by_the_logits_of_one_token(tmp_path):
    """A label for each token of the config, not compared with any other."""
    theirs = save_pooler("llama", tmp_path, "generate")
    overrides = {"classifier_from_token": ["yes", "w3", "w4"], "method": "no_post_processing"}
    with running(tmp_path, convert="classify", hf_overrides=overrides) as llm:
        outputs = llm.encode(PROMPTS, PoolingParams(use_activation=False), use_tqdm=False)
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        assert_close(output.outputs.data, token_logits(theirs, prompt, [5, 9, 10]))


def test_the_prompt_of_the_published_reranker(tmp_path):
    """A query is put into it, unless it comes in it already."""
    save_pooler("qwen3", tmp_path, "generate")
    overrides = {
        "architectures": ["Qwen3ForSequenceClassification"],
        "classifier_from_token": ["no", "yes"],
        "is_original_qwen3_reranker": True,
    }
    with running(tmp_path, hf_overrides=overrides) as llm:
        template = llm.config.model.pooler.pair_template
        (plain,) = llm.score("w5", "w6", use_tqdm=False)
        query = f"{template.before}w5{template.between}"
        (wrapped,) = llm.score(query, f"w6{template.after}", use_tqdm=False)
        expected = llm.get_tokenizer().encode(f"{query}w6{template.after}")
        parts = llm.get_tokenizer().encode_pair(query, f"w6{template.after}")[0]
    assert plain.prompt_token_ids == expected
    assert wrapped.prompt_token_ids == parts


def test_calibrated_scores(tmp_path):
    theirs = save_pooler("bert", tmp_path, "classify", num_labels=1)
    with running(tmp_path, pooler_config={"logit_mean": 0.5, "logit_sigma": 2.0}) as llm:
        (output,) = llm.classify([PROMPTS[3]], use_tqdm=False)
    logit = float(reference_logits(theirs, PROMPTS[3])[0])
    assert output.outputs.probs[0] == pytest.approx(1 / (1 + np.exp(-(logit - 0.5) / 2)), abs=1e-5)


@pytest.mark.parametrize("name", ["mpnet", "modernbert"])
def test_without_the_c_kernels(name, tmp_path, monkeypatch):
    """Texts of like length are padded to one batch; some have biases or a window besides."""
    monkeypatch.setattr("octavo.worker.encoder_rows.text_kernels", lambda: None)
    monkeypatch.setattr("octavo.layers.text.text_kernels", lambda: None)
    theirs = save_pooler(name, tmp_path)
    with running(tmp_path) as llm:
        outputs = llm.encode(PROMPTS, PoolingParams(use_activation=False), use_tqdm=False)
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        assert_close(output.outputs.data, reference_states(theirs, prompt)[0])


def test_dense_layers_of_sentence_transformers(tmp_path):
    theirs = save_pooler("bert", tmp_path)
    torch.manual_seed(5)
    linear = torch.nn.Linear(48, 20)
    config = {"in_features": 48, "out_features": 20, "bias": True,
              "activation_function": "torch.nn.modules.activation.Tanh"}  # fmt: skip
    dense = {"idx": 2, "name": "2", "path": "2_Dense", "type": "st.models.Dense"}
    save_sentence_files(tmp_path, {"pooling_mode_cls_token": True}, dense)
    (tmp_path / "2_Dense").mkdir()
    (tmp_path / "2_Dense" / "config.json").write_text(json.dumps(config))
    weights = {f"linear.{name}": value.data for name, value in linear.named_parameters()}
    save_file(weights, tmp_path / "2_Dense" / "model.safetensors")
    with running(tmp_path) as llm:
        outputs = llm.embed(PROMPTS, use_tqdm=False)
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        state = torch.from_numpy(reference_states(theirs, prompt)[0])
        expected = torch.tanh(linear(state)).detach().numpy()
        assert_close(np.array(output.outputs.embedding, dtype=np.float32), expected)


def test_step_rewards(tmp_path):
    """Of a token classifier: only the positions of one token, only some columns."""
    theirs = save_pooler("qwen3", tmp_path, "token_classify", num_labels=4)
    prompt = [7, 9, 8, 9, 9, 10]
    params = PoolingParams(step_tag_id=9, returned_token_ids=[2, 0])
    with running(tmp_path) as llm:
        (output,) = llm.encode([prompt], params, use_tqdm=False)
        with pytest.raises(RequestError, match=r"outside \[0, 4\)"):
            llm.encode([prompt], PoolingParams(returned_token_ids=[4]), use_tqdm=False)
    expected = torch.softmax(torch.tensor(reference_logits(theirs, prompt)), dim=-1).numpy()
    assert_close(output.outputs.data, expected[[1, 3, 4]][:, [2, 0]])


def test_a_generator_is_pooled_only_if_asked(tmp_path):
    save_pooler("llama", tmp_path, "generate")
    with running(tmp_path) as llm:
        assert llm.generate([PROMPTS[0]], use_tqdm=False)[0].outputs
        with pytest.raises(RequestError, match="--runner pooling"):
            llm.embed([PROMPTS[0]], use_tqdm=False)
    with running(tmp_path, runner="pooling") as llm:
        with pytest.raises(RequestError, match="--runner generate"):
            llm.generate([PROMPTS[0]], use_tqdm=False)
        assert llm.embed([PROMPTS[0]], use_tqdm=False)
    with pytest.raises(ConfigError, match="convert='none'"):
        LLM(str(tmp_path), runner="pooling", convert="none")
