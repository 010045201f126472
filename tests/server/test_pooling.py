"""Real server processes with tiny models that embed and that score pairs, as clients see them."""

import base64
import json

import httpx
import numpy as np
import openai
import pytest
import torch

from support.served_process import ServedProcess
from support.tiny_poolers import save_pooler, save_sentence_files

TEXTS = ["w1", "w2 w3", " ".join(f"w{i}" for i in range(50)), "w5 w6 w7 w8", "w2 w3"]


def served(folder, *flags):
    process = ServedProcess(str(folder), "--served-model-name", "tiny", "--port", "0", *flags)
    process.wait_until_ready()
    return process


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    """(url, transformers' model)."""
    folder = tmp_path_factory.mktemp("embedder")
    model = save_pooler("bert", folder, matryoshka_dimensions=[8, 16])
    normalize = {"idx": 2, "name": "2", "path": "2_Normalize", "type": "st.models.Normalize"}
    save_sentence_files(folder, {"pooling_mode_mean_tokens": True}, normalize, max_seq_length=64)
    process = served(folder)
    yield process.url, model
    assert process.stop() == 0, "".join(process.log[-20:])
    assert not [line for line in process.log if "Traceback" in line]


@pytest.fixture(scope="module")
def scorer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scorer")
    save_pooler("bert", folder, "classify", num_labels=1)
    process = served(folder)
    yield process.url
    assert process.stop() == 0, "".join(process.log[-20:])


@pytest.fixture
def client(embedder):
    with openai.OpenAI(base_url=f"{embedder[0]}/v1", api_key="none", max_retries=0) as client:
        yield client


def post(url, path, **body):
    return httpx.post(url + path, json=body)


def vectors(reply):
    return np.array([data.embedding for data in reply.data])


@torch.inference_mode()
def reference(model, ids):
    state = model(torch.tensor([ids])).last_hidden_state[0].mean(dim=0)
    return torch.nn.functional.normalize(state, dim=0).numpy()


def test_embeddings_by_the_official_client(embedder, client):
    url, model = embedder
    whole = client.embeddings.create(model="tiny", input=TEXTS)  # base64, the client's default
    assert [data.index for data in whole.data] == list(range(len(TEXTS)))
    prompts = [post(url, "/tokenize", prompt=text).json()["tokens"] for text in TEXTS]
    assert whole.usage.prompt_tokens == whole.usage.total_tokens == sum(map(len, prompts))
    for ids, vector in zip(prompts, vectors(whole), strict=True):
        assert np.abs(vector - reference(model, ids)).max() < 1e-5
    floats = client.embeddings.create(model="tiny", input=TEXTS, encoding_format="float")
    assert np.array_equal(vectors(floats).astype(np.float32), vectors(whole).astype(np.float32))
    by_id = client.embeddings.create(model="tiny", input=prompts)
    assert np.array_equal(vectors(by_id), vectors(whole))
    for text, vector in zip(TEXTS, vectors(whole), strict=True):
        alone = client.embeddings.create(model="tiny", input=text)
        assert np.abs(vectors(alone)[0] - vector).max() < 1e-6


def test_fewer_dimensions(client):
    full = vectors(client.embeddings.create(model="tiny", input=TEXTS))
    short = vectors(client.embeddings.create(model="tiny", input=TEXTS, dimensions=8))
    cut = full[:, :8] / np.linalg.norm(full[:, :8], axis=1, keepdims=True)
    assert short.shape == (len(TEXTS), 8)
    assert np.abs(short - cut).max() < 1e-6
    with pytest.raises(openai.BadRequestError, match="none of 8, 16"):
        client.embeddings.create(model="tiny", input=TEXTS, dimensions=9)


@pytest.mark.parametrize(
    ("dtype", "endianness", "numpy_type"),
    [("float32", "big", ">f4"), ("float16", "little", "<f2"), ("bfloat16", "big", ">u2")],
)
def test_forms_of_base64(embedder, dtype, endianness, numpy_type):
    body = {"input": "w1 w2", "encoding_format": "base64", "use_activation": False}
    plain = post(embedder[0], "/v1/embeddings", input="w1 w2", use_activation=False).json()
    expected = np.array(plain["data"][0]["embedding"], dtype=np.float32)
    reply = post(
        embedder[0], "/v1/embeddings", **body, embed_dtype=dtype, endianness=endianness
    ).json()
    found = np.frombuffer(base64.b64decode(reply["data"][0]["embedding"]), numpy_type)
    if dtype == "bfloat16":
        found = (found.astype(np.uint32) << 16).view(np.float32)
    assert np.allclose(found.astype(np.float32), expected, rtol=1e-2 if dtype[0] == "b" else 1e-3)


def test_what_is_too_long(embedder):
    url, _ = embedder
    long = " ".join(["w1"] * 200)
    refused = post(url, "/v1/embeddings", input=long)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "input"
    cut = post(url, "/v1/embeddings", input=long, truncate_prompt_tokens=-1).json()
    assert cut["usage"]["prompt_tokens"] == 64
    few = post(url, "/v1/embeddings", input=long, truncate_prompt_tokens=5).json()
    same = post(url, "/v1/embeddings", input="w1 w1 w1").json()
    assert few["data"][0]["embedding"] == same["data"][0]["embedding"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": ["a", [1]]}, "input"),
        ({"input": [1.5]}, "input[0]"),
        ({"input": [[-1]]}, "input"),
        ({"input": [[10**6]]}, "input"),
        ({"input": [[1 << 30]]}, "input"),
        ({}, "input"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "embed_dtype": "float16"}, "embed_dtype"),
        ({"input": "a", "truncate_prompt_tokens": 65}, "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "messages": []}, "messages"),
    ],
)
def test_bad_requests(embedder, body, param):
    reply = httpx.post(f"{embedder[0]}/v1/embeddings", json=body)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param


def test_an_empty_text_is_its_special_tokens(embedder):
    reply = post(embedder[0], "/v1/embeddings", input=["w1", ""]).json()
    assert reply["usage"]["prompt_tokens"] == 5
    assert abs(np.linalg.norm(reply["data"][1]["embedding"]) - 1) < 1e-5


def test_pooling_of_tokens(embedder):
    reply = post(embedder[0], "/pooling", input=["w1 w2", "w3"], task="token_embed").json()
    assert [np.array(data["data"]).shape for data in reply["data"]] == [(4, 48), (3, 48)]
    assert [data["object"] for data in reply["data"]] == ["pooling"] * 2


def test_scores_of_embeddings_are_cosines(embedder, client):
    scores = post(embedder[0], "/score", queries="w1", documents=TEXTS).json()
    first, *others = vectors(client.embeddings.create(model="tiny", input=["w1", *TEXTS]))
    expected = [float(first @ other) for other in others]
    assert [data["score"] for data in scores["data"]] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("path", ["/v1/completions", "/classify"])
def test_what_the_model_does_not_do(embedder, path):
    reply = post(embedder[0], path, prompt="w1", input="w1")
    assert reply.status_code == 400


def test_rerank_and_score(scorer):
    documents = ["w1 w2", "w9 w8 w7 w6", "w30", {"text": "w40 w41"}]
    plain = [each if isinstance(each, str) else each["text"] for each in documents]
    fields = {"text_1": "w1 w2 w3", "text_2": plain}
    scores = [data["score"] for data in post(scorer, "/v1/score", **fields).json()["data"]]
    assert all(0 < score < 1 for score in scores)
    best = sorted(range(4), key=lambda index: -scores[index])
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        reply = post(scorer, path, query="w1 w2 w3", documents=documents).json()
        assert [result["index"] for result in reply["results"]] == best
        found = [result["relevance_score"] for result in reply["results"]]
        assert found == pytest.approx([scores[index] for index in best], abs=1e-6)
        assert [r["document"]["text"] for r in reply["results"]] == [plain[i] for i in best]
    fields = {"query": "w1 w2 w3", "documents": documents, "top_n": 2, "return_documents": False}
    (first, second) = post(scorer, "/rerank", **fields).json()["results"]
    assert [first["index"], second["index"]] == best[:2]
    assert "document" not in first


def test_a_reranker_that_is_a_generator(tmp_path):
    """Qwen3-Reranker as it is published, by the overrides that other servers want."""
    theirs = save_pooler("qwen3", tmp_path, "generate", max_position_embeddings=512)
    overrides = {
        "architectures": ["Qwen3ForSequenceClassification"],
        "classifier_from_token": ["no", "yes"],
        "is_original_qwen3_reranker": True,
    }
    template = json.dumps({"pair_template": "w1 {query} w2 {document} w3"})
    flags = ("--hf-overrides", json.dumps(overrides), "--pooler-config", template)
    process = served(tmp_path, *flags)
    documents = ["w7 w8 w9", "w20", "w30 w31"]
    expected = []
    for document in documents:
        ids = post(process.url, "/tokenize", prompt=f"w1 w5 w2 {document} w3").json()["tokens"]
        with torch.inference_mode():
            logits = theirs(torch.tensor([ids])).logits[0, -1]
        expected.append(float(torch.softmax(logits[[4, 5]], dim=0)[1]))
    scores = post(process.url, "/score", queries="w5", documents=documents).json()["data"]
    ranked = post(process.url, "/v1/rerank", query="w5", documents=documents).json()["results"]
    assert process.stop() == 0, "".join(process.log[-20:])
    assert [data["score"] for data in scores] == pytest.approx(expected, abs=1e-5)
    assert [result["index"] for result in ranked] == sorted(range(3), key=lambda i: -expected[i])


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/score", {"queries": ["a", "b"], "documents": ["a", "b", "c"]}, "queries"),
        ("/score", {"queries": "a", "text_1": "b", "documents": "c"}, "queries"),
        ("/score", {"queries": "a"}, "documents"),
        ("/score", {"queries": "a", "documents": []}, "documents"),
        ("/rerank", {"query": "a", "documents": []}, "documents"),
        ("/rerank", {"query": "a", "documents": ["b"], "top_n": -1}, "top_n"),
        ("/rerank", {"query": "a", "documents": ["w1 " * 200]}, "documents"),
    ],
)
def test_bad_pairs(scorer, path, body, param):
    reply = httpx.post(scorer + path, json=body)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param


def test_classification(scorer):
    reply = post(scorer, "/classify", input=["w1", "w2 w3"]).json()
    assert [data["num_classes"] for data in reply["data"]] == [1, 1]
    assert all(0 < data["probs"][0] < 1 for data in reply["data"])
    assert reply["data"][0]["label"] == "LABEL_0"
