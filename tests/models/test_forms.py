"""One small model in every form of weights: planned from headers, same tokens out of the engine."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo.cli import plan
from octavo.entrypoints.llm import LLM
from octavo.types.errors import CheckpointError
from octavo.types.sampling_params import SamplingParams
from support.gguf_families import FAMILIES, unpack
from support.tiny_models import save_tiny

PROMPTS = [[5, 6, 7, 8], [9, 10, 11, 2, 3, 4, 8]]
SMALL = {"max_num_seqs": 4, "max_model_len": 64, "kv_cache_memory_bytes": 1 << 20, "device": "cpu"}


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    save_tiny("llama", folder)
    return folder


def engine(path, **options):
    return LLM(str(path), skip_tokenizer_init=True, **SMALL | options)


def tokens(llm):
    params = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": ids} for ids in PROMPTS]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    llm.shutdown()
    return [output.outputs[0].token_ids for output in outputs]


@pytest.fixture(scope="module")
def expected(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "0")
        return tokens(engine(folder))


def as_torch(source, target):
    (target / "config.json").write_text((source / "config.json").read_text())
    torch.save(load_file(source / "model.safetensors"), target / "pytorch_model.bin")


def as_sharded_state(source, target):
    target.rmdir()
    llm = engine(source)
    llm.save_sharded_state(str(target), max_size=60_000)
    llm.shutdown()


def as_many_files(source, target):
    (target / "config.json").write_text((source / "config.json").read_text())
    tensors = load_file(source / "model.safetensors")
    weight_map = {}
    for number, name in enumerate(sorted(tensors)):
        file = f"model-{number % 3}.safetensors"
        weight_map[name] = file
    for file in set(weight_map.values()):
        part = {name: tensors[name] for name, where in weight_map.items() if where == file}
        save_file(part, target / file)
    index = target / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize(
    ("write", "kind"),
    [(as_many_files, "safetensors"), (as_torch, "pt"), (as_sharded_state, "sharded_state")],
)
def test_same_tokens(folder, expected, tmp_path, capsys, write, kind):
    target = tmp_path / "m"
    target.mkdir()
    write(folder, target)
    assert plan.main([str(target), "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "tensors" in printed
    assert "from the architecture" not in printed
    llm = engine(target)
    assert llm.config.load.load_format == kind
    assert tokens(llm) == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_gguf_families_run(tmp_path, family):
    """Names, shapes and config fit the model's class, every parameter included."""
    llm = engine(unpack(family, tmp_path), max_model_len=16, max_num_batched_tokens=16)
    assert llm.config.load.load_format == "gguf"
    assert all(len(found) == 6 for found in tokens(llm))


def test_a_pickle_that_would_run_code_starts_no_engine(folder, tmp_path):
    class Evil:
        def __reduce__(self):
            return eval, ("1",)

    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    torch.save({"w": torch.zeros(1), "x": Evil()}, tmp_path / "pytorch_model.bin")
    for options in ({}, {"trust_remote_code": True}):
        with pytest.raises(CheckpointError, match="is refused: its pickle names"):
            engine(tmp_path, **options)
