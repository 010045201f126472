import json
import shutil
import threading

import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo.checkpoints.locate import find_model
from octavo.model_loader import stream
from octavo.model_loader.loader import LOADERS
from octavo.model_loader.stream import StreamingReader
from octavo.models.registry import build_model
from octavo.platforms.cpu import CpuPlatform
from octavo.platforms.detect import detect_cpu
from octavo.types.errors import CheckpointError
from support.tiny_models import model_context, save_tiny


@pytest.fixture
def reader(monkeypatch):
    monkeypatch.setattr(stream, "BUFFER_BYTES", 1000)  # every matrix in several pieces
    threads = torch.get_num_threads()
    yield StreamingReader(CpuPlatform(detect_cpu()), 3)
    torch.set_num_threads(threads)


def loaded(folder, reader=None):
    files = find_model(str(folder))
    model = build_model(model_context(files))
    for parameter in model.parameters():
        parameter.data.fill_(7.0)
    LOADERS.get("auto")().load(model, files, reader)
    return model


def assert_equal(one, two):
    for (name, mine), theirs in zip(one.named_parameters(), two.parameters(), strict=True):
        assert torch.equal(mine, theirs), name


def sharded(folder, target):
    shutil.copytree(folder, target)
    tensors = load_file(target / "model.safetensors")
    (target / "model.safetensors").unlink()
    index = {}
    for number in range(3):
        file = f"model-{number}.safetensors"
        part = sorted(tensors)[number::3]
        save_file({name: tensors[name] for name in part}, target / file)
        index.update(dict.fromkeys(part, file))
    (target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return target


@pytest.mark.parametrize("family", ["llama", "llama-tied", "llama-biases", "qwen3"])
def test_the_same_parameters(family, tmp_path, reader):
    save_tiny(family, tmp_path / "model")
    assert_equal(loaded(tmp_path / "model", reader), loaded(tmp_path / "model"))


def test_several_files(tiny_folder, tmp_path, reader):
    folder = sharded(tiny_folder, tmp_path / "sharded")
    assert_equal(loaded(folder, reader), loaded(tiny_folder))


def test_other_dtypes_are_converted(tiny_folder, tmp_path, reader):
    folder = tmp_path / "half"
    shutil.copytree(tiny_folder, folder)
    path = folder / "model.safetensors"
    save_file({n: t.to(torch.bfloat16) for n, t in load_file(path).items()}, path)
    assert_equal(loaded(folder, reader), loaded(folder))


def test_host_memory_is_bounded(tiny_folder, monkeypatch):
    monkeypatch.setattr(stream, "BUFFER_BYTES", 1000)
    asked = []

    class Counting(CpuPlatform):
        def host_buffer(self, shape, dtype):
            asked.append(shape[0] * dtype.itemsize)
            return super().host_buffer(shape, dtype)

    threads = torch.get_num_threads()
    loaded(tiny_folder, StreamingReader(Counting(detect_cpu()), 2))
    torch.set_num_threads(threads)
    assert asked == [1000] * 2 * stream.BUFFERS_PER_THREAD


def test_a_file_cut_short_after_the_check_names_the_tensor(tiny_folder, tmp_path, reader):
    folder = tmp_path / "cut"
    shutil.copytree(tiny_folder, folder)
    path = folder / "model.safetensors"
    files = find_model(str(folder))
    headers = files.tensor_headers()
    last = max(headers, key=lambda name: headers[name].offset)
    model = build_model(model_context(files))
    with path.open("r+b") as file:
        file.truncate(headers[last].offset + 2)
    before = threading.active_count()
    with pytest.raises(CheckpointError, match=f"ends within {last}"):
        reader.read(model.weight_map(), headers)
    assert threading.active_count() == before


def test_a_file_that_has_gone_names_the_tensor(tiny_folder, tmp_path, reader):
    folder = tmp_path / "gone"
    shutil.copytree(tiny_folder, folder)
    files = find_model(str(folder))
    headers = files.tensor_headers()
    model = build_model(model_context(files))
    (folder / "model.safetensors").unlink()
    with pytest.raises(
        CheckpointError, match=r"can't read .*(weight|bias) from .*model.safetensors"
    ):
        reader.read(model.weight_map(), headers)
