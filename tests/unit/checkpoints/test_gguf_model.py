"""A GGUF model has the tensors of the model it was converted from."""

import gguf
import numpy as np
import pytest

from octavo.checkpoints.gguf_layout import hf_tensor_name
from octavo.checkpoints.locate import find_model
from octavo.types.errors import CheckpointError
from support.tiny_gguf import HEAD_DIM, gguf_name, hf_weights, write_gguf

Q8_0 = gguf.GGMLQuantizationType.Q8_0


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3"])
def test_tensors_in_hugging_face_layout(tmp_path, arch):
    files = find_model(str(write_gguf(tmp_path / "m.gguf", arch)))
    expected = hf_weights(arch)
    headers = files.tensor_headers()
    assert headers.keys() == expected.keys()
    for name, tensor in files.tensors():
        np.testing.assert_array_equal(tensor.array, expected[name], name)
        assert headers[name].shape == tensor.array.shape
        assert tensor.dtype == "F32"


@pytest.mark.parametrize("arch", ["llama", "qwen3"])
def test_quantized_tensors(tmp_path, arch):
    files = find_model(str(write_gguf(tmp_path / "m.gguf", arch, quantize=Q8_0)))
    expected = hf_weights(arch)
    headers = files.tensor_headers()
    for name, tensor in files.tensors():
        assert tensor.dtype == "F32"
        assert headers[name].dtype == ("Q8_0" if tensor.array.ndim == 2 else "F32")
        np.testing.assert_allclose(tensor.array, expected[name], atol=5e-3, err_msg=name)
    for name, tensor in files.tensors(packed=True):
        if tensor.dtype == "Q8_0":
            assert tensor.array.dtype == np.uint8
            assert tensor.array.nbytes == headers[name].nbytes
            np.testing.assert_array_equal(
                tensor.array, gguf.quants.quantize(expected[name], Q8_0), name
            )


def test_tables_are_no_tensors_and_strangers_keep_their_names(tmp_path):
    extra = {"blk.0.surprise.weight": np.ones(3, np.float32)}
    files = find_model(str(write_gguf(tmp_path / "m.gguf", tensors=extra)))
    assert "blk.0.surprise.weight" in files.tensor_headers()
    assert hf_tensor_name("rope_freqs.weight") is None
    for name in hf_weights("qwen2") | hf_weights("qwen3"):
        assert hf_tensor_name(gguf_name(name)) == name


def split_model(folder):
    weights = hf_weights("qwen3")
    names = list(weights)
    for number, part in enumerate((names[:5], names[5:]), 1):
        write_gguf(
            folder / f"m-{number:05d}-of-00002.gguf",
            "qwen3",
            weights={name: weights[name] for name in part},
            metadata={"split.count": 2, "split.no": number - 1},
        )
    return weights


def test_split_model(tmp_path):
    weights = split_model(tmp_path)
    files = find_model(str(tmp_path))
    assert files.path.name == "m-00001-of-00002.gguf"
    assert {name: tensor.array.shape for name, tensor in files.tensors()} == {
        name: array.shape for name, array in weights.items()
    }
    with pytest.raises(CheckpointError, match="name the first one"):
        find_model(str(tmp_path / "m-00002-of-00002.gguf")).tensor_headers()
    (tmp_path / "m-00002-of-00002.gguf").unlink()
    with pytest.raises(CheckpointError, match=r"lacks m-00002-of-00002\.gguf"):
        find_model(str(tmp_path)).tensor_headers()


def test_head_size_comes_from_the_file(tmp_path):
    config = find_model(str(write_gguf(tmp_path / "m.gguf"))).config()
    assert config["head_dim"] == HEAD_DIM != config["hidden_size"] // config["num_attention_heads"]
