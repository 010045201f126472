import json
import shutil
import weakref

import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo.checkpoints.locate import find_model
from octavo.model_loader.loader import LOADERS, load_model
from octavo.models.registry import build_model
from octavo.types.errors import CheckpointError, ConfigError
from support.tiny_models import load_tiny, model_context, save_tiny


def loaded(folder, load_format="auto"):
    """A model with weights, not yet processed."""
    files = find_model(str(folder))
    model = build_model(model_context(files))
    LOADERS.get(load_format)().load(model, files)
    return model


def changed(folder, target, change):
    """A copy of a model folder with its tensors changed."""
    shutil.copytree(folder, target)
    path = target / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})
    return target


def test_every_parameter_gets_its_tensor(tiny_folder):
    tensors = load_file(tiny_folder / "model.safetensors")
    model = loaded(tiny_folder)
    layer = model.model.layers[1]
    prefix = "model.layers.1"
    qkv = torch.cat([tensors[f"{prefix}.self_attn.{p}_proj.weight"] for p in "qkv"])
    assert torch.equal(layer.self_attn.qkv_proj.weight, qkv)
    down = tensors[f"{prefix}.mlp.down_proj.weight"]
    assert torch.equal(layer.mlp.down_proj.weight, down)
    assert torch.equal(model.lm_head.weight[:203], tensors["lm_head.weight"])
    assert (model.lm_head.weight[203:] == 0).all()
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


def test_missing_extra_and_misshapen_tensors(tiny_folder, tmp_path):
    def change(tensors):
        tensors["model.layers.0.mlp.dwn_proj.weight"] = tensors.pop(
            "model.layers.0.mlp.down_proj.weight"
        )
        tensors["model.norm.weight"] = torch.zeros(5)
        return tensors

    folder = changed(tiny_folder, tmp_path / "bad", change)
    with pytest.raises(CheckpointError) as error:
        loaded(folder)
    message = str(error.value)
    assert "missing: model.layers.0.mlp.down_proj.weight (the file has" in message
    assert "not in the model: model.layers.0.mlp.dwn_proj.weight" in message
    assert "model.norm.weight: [5] in the file, [72] by the config" in message


def test_tied_head_may_be_absent_or_there(tmp_path):
    save_tiny("llama-tied", tmp_path / "tied")
    tensors = load_file(tmp_path / "tied" / "model.safetensors")
    assert "lm_head.weight" not in tensors
    plain = loaded(tmp_path / "tied")

    def change(tensors):
        return tensors | {"lm_head.weight": torch.full((203, 72), 7.0)}

    both = loaded(changed(tmp_path / "tied", tmp_path / "both", change))
    assert both.lm_head.weight is both.model.embed_tokens.weight
    assert torch.equal(both.lm_head.weight, plain.lm_head.weight)


def test_old_rotary_buffers_are_ignored(tiny_folder, tmp_path):
    def change(tensors):
        return tensors | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}

    loaded(changed(tiny_folder, tmp_path / "old", change))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_checkpoint_dtype_is_converted(tiny_folder, tmp_path, dtype):
    folder = changed(
        tiny_folder, tmp_path / "half", lambda tensors: {n: t.to(dtype) for n, t in tensors.items()}
    )
    exact = load_file(tiny_folder / "model.safetensors")["model.norm.weight"]
    model = loaded(folder)
    assert model.model.norm.weight.dtype == torch.float32
    assert torch.equal(model.model.norm.weight, exact.to(dtype).float())


def test_sharded_checkpoint(tiny_folder, tmp_path):
    folder = tmp_path / "sharded"
    shutil.copytree(tiny_folder, folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    index = {}
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-{number:05d}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        index.update(dict.fromkeys(part, file))
    text = json.dumps({"metadata": {}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(text)
    ours, single = loaded(folder), loaded(tiny_folder)
    for (name, parameter), other in zip(ours.named_parameters(), single.parameters(), strict=True):
        assert torch.equal(parameter, other), name


def test_tensors_are_not_kept(tiny_folder):
    """At most one checkpoint tensor is alive beside the parameters."""
    files = find_model(str(tiny_folder))
    model = build_model(model_context(files))
    alive = weakref.WeakSet()
    original = model.load_weights

    def watch(weights):
        def watched():
            for name, tensor in weights:
                assert len(alive) <= 1
                copy = tensor.clone()
                alive.add(copy)
                del tensor
                yield name, copy
                del copy

        return original(watched())

    model.load_weights = watch
    LOADERS.get("auto")().load(model, files)
    assert not alive


def test_dummy_needs_no_weights_and_repeats(tiny_folder, tmp_path):
    folder = tmp_path / "config-only"
    folder.mkdir()
    shutil.copy(tiny_folder / "config.json", folder)
    first, second = loaded(folder, "dummy"), loaded(folder, "dummy")
    for (name, one), two in zip(first.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(one, two), name
        assert one.abs().max() <= 1e-3
        assert one.std() > 4e-4 or one.numel() < 100
    assert not torch.equal(
        first.model.layers[0].mlp.down_proj.weight, first.model.layers[1].mlp.down_proj.weight
    )


def test_load_format_must_match_the_files(tiny_folder):
    with pytest.raises(ConfigError, match="use load_format=auto"):
        load_tiny(tiny_folder, load_format="gguf")
    assert load_tiny(tiny_folder, load_format="safetensors")


def test_unknown_load_format(tiny_folder):
    files = find_model(str(tiny_folder))
    with pytest.raises(
        ConfigError, match=r"load_format='pickle'.*auto, dummy, gguf, hf, mistral, pt"
    ):
        load_model(model_context(files), files, "pickle")
