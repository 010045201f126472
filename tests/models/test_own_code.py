"""Models that come with Python code: run when that is asked for, refused when it is not."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
import transformers

from octavo import LLM, SamplingParams
from octavo.checkpoints.locate import find_model
from octavo.cli import plan
from octavo.tokenizers.tokenizer import load_tokenizer
from octavo.types.errors import CheckpointError, ConfigError

CODE = Path(__file__).parents[1] / "support" / "data" / "own_code"
SMALL = {"max_num_seqs": 4, "max_model_len": 64, "kv_cache_memory_bytes": 1 << 20, "device": "cpu"}
LETTERS = [chr(number) for number in range(32, 127)]
AUTO_MAP = {
    "AutoConfig": "configuration_tidy.TidyConfig",
    "AutoModelForCausalLM": "modeling_tidy.TidyForCausalLM",
}


@pytest.fixture(autouse=True)
def ran(monkeypatch, tmp_path):
    """Where the code notes which of its files were run."""
    folder = tmp_path / "ran"
    folder.mkdir()
    monkeypatch.setenv("OWN_CODE_RAN", str(folder))
    monkeypatch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "0")
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
        monkeypatch.delitem(sys.modules, name)
    return lambda: {path.name for path in folder.iterdir()}


@pytest.fixture
def folder(tmp_path):
    """A model whose configuration, class and tokenizer are its own; weights as transformers'."""
    folder = tmp_path / "tidy-1.0"
    shutil.copytree(CODE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    config = {"model_type": "tidy", "architectures": ["TidyForCausalLM"], "auto_map": AUTO_MAP}
    sizes = {"breadth": 32, "depth": 2, "heads": 4, "vocab_size": 203, "eos_token_id": 1}
    (folder / "config.json").write_text(json.dumps(config | sizes))
    (folder / "letters.txt").write_text("\n".join(LETTERS), encoding="utf-8")
    tokenizer = {
        "auto_map": {"AutoTokenizer": [None, "tokenization_tidy.TidyTokenizer"]},
        "tokenizer_class": "TidyTokenizer",
        "eos_token": "</s>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return folder


@pytest.fixture
def reference(folder, ran):
    """transformers' own run of the model, its weights saved into the folder."""
    torch.manual_seed(5)
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    model = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=True).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    kept = (folder / "config.json").read_text()
    model.save_pretrained(folder)
    (folder / "config.json").write_text(kept)
    return model


def greedy(model, prompt, count):
    ids = list(prompt)
    for _ in range(count):
        with torch.inference_mode():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt) :]


def test_what_was_asked_for_is_run(folder, reference, caplog):
    llm = LLM(str(folder), trust_remote_code=True, **SMALL)
    assert f"runs the model's own modeling_tidy.TidyForCausalLM from {folder}" in caplog.text
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    texts = ["Hello, world", "tidy"]
    outputs = llm.generate(texts, params, use_tqdm=False)
    llm.shutdown()
    for text, output in zip(texts, outputs, strict=True):
        prompt = [LETTERS.index(letter) + 2 for letter in text]
        assert output.prompt_token_ids == prompt
        made = output.outputs[0]
        assert list(made.token_ids) == greedy(reference, prompt, 12)
        spelt = {index + 2: letter for index, letter in enumerate(LETTERS)}
        assert made.text == "".join(spelt.get(token, "") for token in made.token_ids if token > 1)


def test_nothing_is_run_unasked(folder, ran):
    message = (
        r"TidyForCausalLM is defined by code that comes with it \(modeling_tidy\.TidyForCausalLM\)"
        ".*add --trust-remote-code"
    )
    for options in ({}, {"model_impl": "transformers"}, {"skip_tokenizer_init": True}):
        with pytest.raises(ConfigError, match=message):
            LLM(str(folder), **SMALL, **options)
    with pytest.raises(CheckpointError, match=r"tokenization_tidy\.TidyTokenizer.*--trust-remote"):
        load_tokenizer(find_model(str(folder)))
    with pytest.raises(ConfigError, match=message):
        plan.main([str(folder), "--device", "cpu"])
    assert ran() == set()


def test_a_plan_runs_the_configuration_alone(folder, ran, capsys):
    assert plan.main([str(folder), "--device", "cpu", "--trust-remote-code"]) == 0
    assert "from the architecture" in capsys.readouterr().out
    assert ran() == {"configuration"}


def test_code_is_not_run_where_octavo_or_transformers_has_the_class(folder, ran, caplog):
    """A Llama with code beside it: octavo's class, octavo's tokenizer."""
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        vocab_size=203,
        max_position_embeddings=128,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    entry = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(entry | {"auto_map": AUTO_MAP}))
    for options in ({}, {"trust_remote_code": True}, {"model_impl": "transformers"}):
        llm = LLM(str(folder), skip_tokenizer_init=True, **SMALL, **options)
        llm.shutdown()
    assert "no class of the model's own is needed, and none is run" in caplog.text
    assert ran() == set()


def test_code_that_stands_in_for_a_known_type(folder, ran):
    """config.json says llama, the class is another: transformers' Llama would be a wrong model."""
    entry = json.loads((folder / "config.json").read_text()) | {"model_type": "llama"}
    entry["auto_map"] = {"AutoModelForCausalLM": "modeling_tidy.TidyForCausalLM"}
    (folder / "config.json").write_text(json.dumps(entry))
    with pytest.raises(ConfigError, match="add --trust-remote-code"):
        LLM(str(folder), skip_tokenizer_init=True, **SMALL)
    assert ran() == set()


def test_code_that_fails_is_named(folder):
    (folder / "tokenization_tidy.py").write_text("1 / 0\n")
    with pytest.raises(CheckpointError, match=r"ZeroDivisionError.*--skip-tokenizer-init"):
        load_tokenizer(find_model(str(folder), trust_remote_code=True))
    (folder / "configuration_tidy.py").write_text("from transformers import NoSuchThing\n")
    with pytest.raises(ConfigError, match=r"configuration_tidy\.TidyConfig .*NoSuchThing"):
        LLM(str(folder), trust_remote_code=True, **SMALL)


def test_a_model_that_keeps_its_own_attention(folder):
    file = folder / "modeling_tidy.py"
    text = file.read_text().replace("_supports_attention_backend = True", "")
    file.write_text(text)
    with pytest.raises(ConfigError, match="lets its attention be replaced"):
        LLM(str(folder), trust_remote_code=True, load_format="dummy", **SMALL)


TIKTOKEN_CLASS = """
from transformers import PreTrainedTokenizer


class TidyTokenizer(PreTrainedTokenizer):
    vocab_files_names = {"vocab_file": "words.tiktoken"}

    def __init__(self, vocab_file=None, **kwargs):
        self.vocab_file = vocab_file
        super().__init__(**kwargs)

    vocab_size = 256

    def get_vocab(self):
        return {chr(number): number for number in range(256)}

    def _tokenize(self, text):
        return [chr(number) for number in text.encode()]

    def _convert_token_to_id(self, token):
        return ord(token) ^ FLIP
"""


@pytest.mark.parametrize("flip", [1])
def test_a_tokenizer_in_python_that_no_file_describes(folder, flip):
    (folder / "tokenization_tidy.py").write_text(TIKTOKEN_CLASS.replace("FLIP", str(flip)))
    (folder / "words.tiktoken").write_text("")
    named = {"auto_map": {"AutoTokenizer": ["tokenization_tidy.TidyTokenizer", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    with pytest.raises(CheckpointError, match=r"TidyTokenizer in .* can't be made into"):
        load_tokenizer(find_model(str(folder), trust_remote_code=True))
