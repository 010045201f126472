"""Models that octavo has no class for: transformers' own logits and tokens through the backend."""

from pathlib import Path

import pytest
import torch
import transformers

from octavo import LLM, SamplingParams
from octavo.types.errors import ConfigError
from support.paged_model import PagedModel
from support.tiny_models import load_tiny
from support.transformers_models import ARCHITECTURES, class_name, outcome

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
# One of each kind: plain, windows in some layers, experts, latent attention, another layout.
QUICK = ("olmo", "cwm", "qwen3_moe", "deepseek_v3", "gpt_bigcode", "diffllama", "gpt_oss")


@pytest.fixture(scope="module")
def listed():
    """model_type -> what docs/models.md says of it."""
    rows = PAGE.read_text(encoding="utf-8").partition("## Through")[2].splitlines()
    cells = [[cell.strip() for cell in row.split("|")] for row in rows if row.startswith("| ")]
    return {row[1]: row[3] for row in cells if row[1] != "model_type"}


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in ARCHITECTURES
    ],
)
def test_is_as_the_page_says(listed, name):
    """`python tools/models_page.py` writes the page."""
    assert outcome(name) == listed[name]


def test_the_page_lists_enough(listed):
    assert set(listed) == set(ARCHITECTURES)
    assert sum(text == "pass" for text in listed.values()) >= 25
    assert class_name("olmo") == "OlmoForCausalLM"


@pytest.fixture(scope="module")
def olmo(tmp_path_factory):
    torch.manual_seed(3)
    config = transformers.OlmoConfig(**ARCHITECTURES["olmo"])
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    folder = tmp_path_factory.mktemp("olmo")
    model.save_pretrained(folder)
    return model, folder


@pytest.mark.parametrize(
    "options",
    [
        {"max_num_batched_tokens": 16},
        {"num_gpu_blocks_override": 14, "max_num_batched_tokens": 32},
        {"enable_prefix_caching": False, "async_scheduling": False},
    ],
    ids=["chunks", "few-blocks", "plain"],
)
def test_the_engine_chooses_it(olmo, monkeypatch, caplog, options):
    model, folder = olmo
    monkeypatch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "0")
    llm = LLM(
        str(folder),
        device="cpu",
        skip_tokenizer_init=True,
        max_model_len=128,
        max_num_seqs=8,
        **options,
    )
    assert "runs through the Transformers backend: octavo has no class for it" in caplog.text
    prompts = [list(range(2, 2 + n)) for n in (40, 45, 20, 60, 3)]
    params = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True, detokenize=False)
    outputs = llm.generate([{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)
    llm.shutdown()
    for prompt, output in zip(prompts, outputs, strict=True):
        made = list(output.outputs[0].token_ids)
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + made[:-1]])).logits[0]
        assert made == logits[len(prompt) - 1 :].argmax(dim=-1).tolist()


def test_a_window_that_the_model_does_not_use(tmp_path):
    """Blocks would be given up that are still attended to."""
    values = ARCHITECTURES["phimoe"] | {"sliding_window": 24}
    model = transformers.AutoModelForCausalLM.from_config(transformers.PhimoeConfig(**values))
    model.save_pretrained(tmp_path)
    paged = PagedModel(load_tiny(tmp_path), block_size=16)
    with pytest.raises(ConfigError, match="sliding_window=None"):
        paged.step([(paged.sequence(), [5, 6, 7])])
