"""What a Sentence Transformers folder says."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from octavo.checkpoints.sentence_transformers import dense_tensors, read_sentence_files
from octavo.types.errors import CheckpointError


def write(path, content):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def test_a_plain_model_has_none(tmp_path):
    assert read_sentence_files(tmp_path) is None
    assert read_sentence_files(tmp_path / "model.gguf") is None


def test_modules_and_settings(tmp_path):
    entries = [
        {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    write(tmp_path / "modules.json", entries)
    write(tmp_path / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
    write(tmp_path / "config.json", {"of": "the transformer"})
    write(tmp_path / "sentence_bert_config.json", {"max_seq_length": 77})
    files = read_sentence_files(tmp_path)
    assert [module.kind for module in files.modules] == ["Transformer", "Pooling", "Normalize"]
    assert [dict(module.config) for module in files.modules] == [
        {},
        {"pooling_mode_mean_tokens": True},
        {},
    ]
    assert files.transformer == {"max_seq_length": 77}


@pytest.mark.parametrize(
    "content", [{"a": 1}, [1], [{"path": "x"}], [{"type": "A", "path": "../x"}]]
)
def test_other_content_is_refused(tmp_path, content):
    write(tmp_path / "modules.json", content)
    with pytest.raises(CheckpointError, match=r"modules\.json is no list of modules"):
        read_sentence_files(tmp_path)


def test_weights_of_dense_modules(tmp_path):
    (tmp_path / "2_Dense").mkdir()
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    save_file({"linear.weight": weight}, tmp_path / "2_Dense" / "model.safetensors")
    tensors = dense_tensors(tmp_path, "2_Dense")
    assert np.array_equal(tensors["linear.weight"].array, weight)
    with pytest.raises(CheckpointError, match="3_Dense"):
        dense_tensors(tmp_path, "3_Dense")
