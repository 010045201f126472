"""Sharded state: what is saved is loaded again, by name, and by as many ranks only."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo.checkpoints.locate import find_model
from octavo.model_loader.loader import MappedReader, fill_model
from octavo.model_loader.sharded_state import save_sharded_state, save_small_files
from octavo.models.registry import build_model
from octavo.types.errors import CheckpointError, ConfigError
from support.tiny_models import model_context
from support.tiny_tokenizer import save_tokenizer


def filled(folder, load_format="auto"):
    files = find_model(str(folder), load_format=load_format)
    model = build_model(model_context(files))
    fill_model(model, files, load_format, MappedReader())
    return model


@pytest.fixture(scope="module")
def saved(tiny_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    source = find_model(str(tiny_folder))
    model = filled(tiny_folder)
    paths = save_sharded_state(model, folder, max_size=40_000)
    save_small_files(source, folder, "float32")
    return folder, model, paths


def test_parts_hold_every_parameter_once(saved):
    _, model, paths = saved
    assert [path.name for path in paths] == [
        f"model-rank-0-part-{number}.safetensors" for number in range(len(paths))
    ]
    assert len(paths) > 2
    parts = [load_file(path) for path in paths]
    assert all(
        len(part) == 1 or sum(tensor.nbytes for tensor in part.values()) <= 40_000 for part in parts
    )
    found = {name: tensor for part in parts for name, tensor in part.items()}
    expected = dict(model.named_parameters())
    assert found.keys() == expected.keys()
    assert sum(map(len, parts)) == len(expected)
    assert "model.layers.0.self_attn.qkv_proj.weight" in found


@pytest.mark.parametrize("load_format", ["auto", "sharded_state"])
def test_loaded_again(saved, load_format):
    folder, model, _ = saved
    assert find_model(str(folder)).kind == "sharded_state"
    again = dict(filled(folder, load_format).named_parameters())
    for name, parameter in model.named_parameters():
        assert torch.equal(again[name], parameter), name


def test_missing_extra_and_misshapen(saved, tmp_path):
    folder, _, paths = saved
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    tensors = load_file(paths[0])
    tensors["model.extra.weight"] = torch.zeros(2)
    first = next(iter(tensors))
    tensors[first] = torch.zeros(3)
    save_file(tensors, tmp_path / paths[0].name)
    with pytest.raises(CheckpointError) as error:
        filled(tmp_path)
    assert "not in the model: model.extra.weight" in str(error.value)
    assert f"{first}: [3] in the file" in str(error.value)
    (tmp_path / paths[1].name).unlink()
    with pytest.raises(CheckpointError, match=r"lacks model-rank-0-part-1\.safetensors"):
        filled(tmp_path)


def test_other_numbers_of_ranks(saved, tmp_path):
    folder, _, _ = saved
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    save_file({"a": torch.zeros(1)}, tmp_path / "model-rank-1-part-0.safetensors")
    with pytest.raises(CheckpointError, match="shards of 2 ranks; this engine has 1"):
        filled(tmp_path)


def test_a_folder_is_not_written_twice(saved):
    folder, model, _ = saved
    with pytest.raises(ConfigError, match=r"holds model-rank-0-part-0.* already"):
        save_sharded_state(model, folder)


def test_small_files_are_those_of_the_model(saved, tiny_folder, tmp_path):
    config = json.loads((saved[0] / "config.json").read_text())
    original = json.loads((tiny_folder / "config.json").read_text())
    assert config == original | {"dtype": "float32"}
    assert not (saved[0] / "tokenizer.json").exists()  # nor has the original
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text('{"torch_dtype": "bfloat16"}')
    save_tokenizer(source)
    (source / "additional_chat_templates").mkdir()
    (source / "additional_chat_templates" / "tools.jinja").write_text("tools")
    files = find_model(str(source))
    target = tmp_path / "target"
    target.mkdir()
    save_small_files(files, target, "float16")
    copy = find_model(str(target))
    assert copy.config() == {"dtype": "float16"}
    assert copy.tokenizer_json() == files.tokenizer_json()
    assert copy.chat_templates() == files.chat_templates()
    assert "tools" in copy.chat_templates()
