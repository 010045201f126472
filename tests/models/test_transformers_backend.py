"""Models that octavo has no class for: transformers' own logits and tokens through the backend."""

import dataclasses
import importlib.util
from pathlib import Path

import pytest
import torch
import transformers

from octavo import LLM, SamplingParams
from octavo.checkpoints.locate import find_model
from octavo.model_loader.loader import load_model
from octavo.types.errors import ConfigError
from support.paged_model import PagedModel
from support.thread_ranks import on_all_ranks, thread_ranks
from support.tiny_models import load_tiny, model_context
from support.transformers_models import ARCHITECTURES, class_name, outcome

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "models.md"
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


def test_the_rest_of_the_page_is_what_the_tool_writes(listed):
    """Own classes, among others."""
    spec = importlib.util.spec_from_file_location("models_page", ROOT / "tools" / "models_page.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.page(listed) == PAGE.read_text(encoding="utf-8")


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


def test_a_router_stays_in_float32(tmp_path):
    """The model asks for it; octavo's layers have the dtype of the whole."""
    config = transformers.HunYuanMoEV1Config(**ARCHITECTURES["hunyuan_v1_moe"])
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    files = find_model(str(tmp_path))
    ours = load_model(model_context(files, dtype=torch.bfloat16), files)
    gate = ours.get_submodule("decoder.layers.0.mlp.gate.wg")
    assert gate.weight.dtype == torch.float32
    assert torch.equal(gate.weight, model.model.layers[0].mlp.gate.wg.weight)


def test_a_window_that_the_model_does_not_use(tmp_path):
    """Blocks would be given up that are still attended to."""
    values = ARCHITECTURES["phimoe"] | {"sliding_window": 24}
    model = transformers.AutoModelForCausalLM.from_config(transformers.PhimoeConfig(**values))
    model.save_pretrained(tmp_path)
    paged = PagedModel(load_tiny(tmp_path), block_size=16)
    with pytest.raises(ConfigError, match="sliding_window=None"):
        paged.step([(paged.sequence(), [5, 6, 7])])


def divided(folder, model_type, **changes):
    """(transformers' model, ours as each of two ranks has it)."""
    torch.manual_seed(4)
    values = ARCHITECTURES[model_type] | changes
    config = transformers.CONFIG_MAPPING[model_type](**values)
    theirs = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    theirs.save_pretrained(folder)
    files = find_model(str(folder))
    contexts = [dataclasses.replace(model_context(files), group=g) for g in thread_ranks(2)]
    return theirs, [load_model(context, files) for context in contexts]


# Plain, with norms of heads, with rotation before the division into heads.
@pytest.mark.parametrize("model_type", ["olmo", "apertus", "gptj"])
def test_two_ranks_follow_the_plan(tmp_path, model_type):
    """Weights are halves where transformers' plan says so; the logits are those of the whole."""
    theirs, ranks = divided(tmp_path, model_type)
    whole = sum(p.numel() for n, p in theirs.named_parameters() if ".mlp." in n)
    for rank in ranks:
        assert sum(p.numel() for n, p in rank.named_parameters() if ".mlp." in n) < 0.51 * whole
    paged = [PagedModel(rank, seed=1) for rank in ranks]
    prompt = list(range(2, 42))
    outputs = on_all_ranks([lambda p=p: p.step([(p.sequence(), prompt)])[0] for p in paged])
    with torch.inference_mode():
        expected = theirs(torch.tensor([prompt])).logits[0]
    for logits in outputs:
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [("qwen3_moe", {}), ("persimmon", {}), ("olmo", {"num_key_value_heads": 1})],
    ids=["experts", "no-plan", "one-kv-head"],
)
def test_what_can_not_be_divided(tmp_path, model_type, changes):
    with pytest.raises(ConfigError, match=r"can't be divided among 2 ranks"):
        divided(tmp_path, model_type, **changes)
