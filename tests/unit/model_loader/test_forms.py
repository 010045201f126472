"""Weights of one model in every form of files give the same parameters."""

import contextlib
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo.checkpoints.locate import find_model
from octavo.model_loader import loader
from octavo.model_loader.loader import MappedReader, fill_model, load_model
from octavo.model_loader.stream import StreamingReader
from octavo.models.registry import build_model
from octavo.platforms.cpu import CpuPlatform
from octavo.platforms.detect import detect_platform
from octavo.types.errors import CheckpointError, ConfigError
from support.tiny_models import SHAPE, model_context, save_tiny

HEADS = {"wq": SHAPE["num_attention_heads"], "wk": SHAPE["num_key_value_heads"]}
MISTRAL_NAMES = {
    "model.embed_tokens": "tok_embeddings",
    "model.norm": "norm",
    "lm_head": "output",
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
}
PARAMS = {
    "dim": SHAPE["hidden_size"],
    "n_layers": SHAPE["num_hidden_layers"],
    "head_dim": SHAPE["head_dim"],
    "hidden_dim": SHAPE["intermediate_size"],
    "n_heads": SHAPE["num_attention_heads"],
    "n_kv_heads": SHAPE["num_key_value_heads"],
    "norm_eps": SHAPE["rms_norm_eps"],
    "vocab_size": SHAPE["vocab_size"],
    "rope_theta": 10000.0,
}


@pytest.fixture(scope="module")
def mistral_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistral")
    save_tiny("mistral", folder)
    return folder


def interleaved(rows, num_heads):
    """Rows of a projection in the order of rotary pairs that are neighbours."""
    halves = rows.reshape(num_heads, 2, -1, rows.shape[-1])
    return halves.transpose(1, 2).reshape(rows.shape).contiguous()


def mistral_tensors(tensors):
    """The names and row orders of Mistral's own code."""
    renamed = {}
    for name, tensor in tensors.items():
        for theirs, ours in MISTRAL_NAMES.items():
            name = name.replace(f"{theirs}.", f"{ours}.")
        name = name.removeprefix("model.")
        for part, heads in HEADS.items():
            if f".{part}." in name:
                tensor = interleaved(tensor, heads)
        renamed[name] = tensor
    return renamed


def write_torch(folder, tensors):
    torch.save(tensors, folder / "pytorch_model.bin")


def write_old_torch(folder, tensors):
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


def write_transposed_torch(folder, tensors):
    """Columns one after the other: what is loaded is not what lies in the file."""
    torch.save({name: t.t().contiguous().t() for name, t in tensors.items()}, folder / "model.pt")


def write_sharded_torch(folder, tensors):
    names = sorted(tensors)
    shards = {"a.bin": names[::2], "b.bin": names[1::2]}
    for file, part in shards.items():
        torch.save({name: tensors[name] for name in part}, folder / file)
    weight_map = {name: file for file, part in shards.items() for name in part}
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))


def write_mistral(folder, tensors):
    save_file(mistral_tensors(tensors), folder / "consolidated.safetensors")
    (folder / "params.json").write_text(json.dumps(PARAMS))
    (folder / "config.json").unlink()


def write_sharded_mistral(folder, tensors):
    renamed = mistral_tensors(tensors)
    names = sorted(renamed)
    for number, part in enumerate((names[:5], names[5:]), 1):
        path = folder / f"consolidated-{number:05d}-of-00002.safetensors"
        save_file({name: renamed[name] for name in part}, path)
    (folder / "params.json").write_text(json.dumps(PARAMS))


FORMS = {
    "pt": (write_torch, write_old_torch, write_transposed_torch, write_sharded_torch),
    "mistral": (write_mistral, write_sharded_mistral),
}
WRITERS = [(kind, write) for kind, writers in FORMS.items() for write in writers]


def copied(source, folder, write):
    """A folder with the small files of `source` and its weights in another form."""
    (folder / "config.json").write_text((source / "config.json").read_text())
    write(folder, load_file(source / "model.safetensors"))
    return folder


def filled(folder, reader, load_format="auto"):
    files = find_model(str(folder), load_format=load_format)
    model = build_model(model_context(files))
    fill_model(model, files, load_format, reader)
    return model


@pytest.mark.parametrize(("kind", "write"), WRITERS)
@pytest.mark.parametrize("streaming", [False, True])
def test_same_parameters(mistral_folder, tmp_path, kind, write, streaming):
    folder = copied(mistral_folder, tmp_path, write)
    assert find_model(str(folder)).kind == kind
    platform = CpuPlatform(detect_platform("cpu"))
    reader = StreamingReader(platform, 2) if streaming else MappedReader()
    expected = dict(filled(mistral_folder, MappedReader()).named_parameters())
    found = dict(filled(folder, reader, kind).named_parameters())
    assert found.keys() == expected.keys()
    for name, parameter in found.items():
        assert torch.equal(parameter, expected[name]), name


@pytest.mark.parametrize(("kind", "write"), WRITERS)
def test_missing_extra_and_misshapen(mistral_folder, tmp_path, kind, write):
    tensors = load_file(mistral_folder / "model.safetensors")
    tensors["model.layers.0.surprise.weight"] = tensors.pop("model.layers.0.mlp.up_proj.weight")
    tensors["model.norm.weight"] = torch.zeros(5)
    (tmp_path / "config.json").write_text((mistral_folder / "config.json").read_text())
    write(tmp_path, tensors)
    with pytest.raises(CheckpointError) as error:
        load_model(model_context(find_model(str(tmp_path))), find_model(str(tmp_path)))
    message = str(error.value)
    assert "missing: model.layers.0.mlp.up_proj.weight" in message
    assert "layers.0.surprise.weight" in message
    assert "model.norm.weight: [5] in the file, [72] by the config" in message


def test_the_config_of_params_is_that_of_transformers(mistral_folder, tmp_path):
    folder = copied(mistral_folder, tmp_path, write_mistral)
    config = find_model(str(folder)).config()
    original = json.loads((mistral_folder / "config.json").read_text())
    for name in (
        "architectures",
        "model_type",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "rms_norm_eps",
        "vocab_size",
        "hidden_act",
    ):
        assert config[name] == original[name], name


def test_the_form_that_is_asked_for(mistral_folder, tmp_path):
    folder = copied(mistral_folder, tmp_path, write_torch)
    tensors = load_file(mistral_folder / "model.safetensors")
    write_sharded_mistral(folder, tensors)
    assert find_model(str(folder)).kind == "mistral"
    assert find_model(str(folder), load_format="pt").kind == "pt"
    save_file(tensors, folder / "model.safetensors")
    assert find_model(str(folder)).kind == "safetensors"
    assert find_model(str(folder), load_format="mistral").kind == "mistral"
    with pytest.raises(CheckpointError, match="are safetensors and mistral and pt; use --load"):
        find_model(str(folder), load_format="gguf")
    files = find_model(str(folder), load_format="pt")
    with pytest.raises(ConfigError, match=r"load_format='safetensors', but .* opened as pt"):
        load_model(model_context(files), files, "safetensors")
    own = find_model(str(folder), config_format="mistral").config()
    assert own["sliding_window"] is None
    assert find_model(str(folder)).config() != own


@pytest.mark.parametrize("streaming", [False, True])
def test_progress_counts_every_byte(mistral_folder, monkeypatch, streaming):
    counted = []

    @contextlib.contextmanager
    def progress(what, total):
        counted.append(-total)
        yield counted.append

    monkeypatch.setattr(loader, "byte_progress", progress)
    reader = StreamingReader(CpuPlatform(detect_platform("cpu")), 2)
    filled(mistral_folder, reader if streaming else MappedReader())
    assert len(counted) > 10
    assert counted[0] < 0
    assert sum(counted) == 0
