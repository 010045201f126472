"""A folder as transformers saves it."""

import json

import numpy as np
import pytest
import torch
import transformers

from octavo.checkpoints.folder import FolderFiles
from octavo.types.errors import CheckpointError

SHAPE = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shard_size", ["5GB", "5KB"])
def test_saved_model(tmp_path, dtype, shard_size):
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE)).to(dtype)
    model.save_pretrained(tmp_path, max_shard_size=shard_size)
    files = FolderFiles(tmp_path, "m")
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shard_size == "5KB")
    assert files.config()["hidden_size"] == 16
    expected = model.state_dict()
    found = dict(files.tensors())
    assert found.keys() == files.tensor_headers().keys() == expected.keys()
    for name, tensor in found.items():
        loaded = torch.from_numpy(tensor.array)
        assert tensor.dtype == {torch.float32: "F32", torch.bfloat16: "BF16"}[dtype]
        loaded = loaded.view(dtype) if tensor.dtype == "BF16" else loaded
        assert torch.equal(loaded, expected[name])


def test_tensors_come_in_file_order_and_unread(tmp_path):
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE))
    model.save_pretrained(tmp_path)
    files = FolderFiles(tmp_path, "m")
    offsets = [files.tensor_headers()[name].offset for name, _ in files.tensors()]
    assert offsets == sorted(offsets)
    _, first = next(files.tensors(packed=True))
    assert not first.array.flags.owndata
    first.array[:] = 0  # a private page: the file stays
    _, again = next(files.tensors())
    assert np.any(again.array)


def test_optional_files(tmp_path):
    files = FolderFiles(tmp_path, "m")
    assert files.generation_config() == files.tokenizer_config() == files.chat_templates() == {}
    assert files.chat_template() is None
    with pytest.raises(CheckpointError, match=r"can't read .*config\.json"):
        files.config()
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match=r"can't read .*chat_template\.jinja"):
        files.chat_templates()


def test_named_templates_of_the_tokenizer_config(tmp_path):
    templates = [{"name": "default", "template": "d"}, {"name": "rag", "template": "r"}, "x"]
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": templates}))
    assert FolderFiles(tmp_path, "m").chat_templates() == {"default": "d", "rag": "r"}
    config.write_text(json.dumps({"chat_template": {"default": "e"}}))
    assert FolderFiles(tmp_path, "m").chat_template() == "e"
