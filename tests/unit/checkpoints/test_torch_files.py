"""Files of torch.save: what torch writes is read, and a pickle that would do more is refused."""

import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from octavo.checkpoints.locate import find_model
from octavo.checkpoints.tensors import MappedFiles
from octavo.checkpoints.torch_files import read_file_headers
from octavo.checkpoints.weight_files import TORCH
from octavo.types.errors import CheckpointError

WHOLE = torch.arange(24, dtype=torch.float32).reshape(4, 6)
TENSORS = {
    "f32": WHOLE,
    "same": WHOLE,
    "transposed": WHOLE.T,
    "slice": WHOLE[1:3, 2:5],
    "column": WHOLE[:, 3],
    "expanded": torch.ones(3, 1).expand(3, 4),
    "scalar": torch.tensor(7, dtype=torch.int64),
    "empty": torch.zeros(0, 4, dtype=torch.float16),
    "bf16": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "f64": torch.tensor([1.0, 3.0], dtype=torch.float64),
    "i32": torch.arange(3, dtype=torch.int32),
    "i16": torch.arange(3, dtype=torch.int16),
    "i8": torch.arange(-2, 2, dtype=torch.int8),
    "u8": torch.arange(3, dtype=torch.uint8),
    "bool": torch.tensor([True, False]),
    "parameter": torch.nn.Parameter(torch.tensor([0.25])),
}
NEWER = {
    "fp8": torch.tensor([1.0, -0.5]).to(torch.float8_e4m3fn),
    "u16": torch.tensor([1, 65535]).to(torch.uint16),
}


def check(path, tensors):
    headers, files = read_file_headers(path), MappedFiles()
    assert headers.keys() == tensors.keys()
    for name, expected in tensors.items():
        expected = expected.detach().contiguous()
        raw = files.read(name, headers[name])
        assert headers[name].shape == raw.array.shape == tuple(expected.shape), name
        assert headers[name].nbytes == expected.nbytes
        assert raw.array.tobytes() == expected.flatten().view(torch.uint8).numpy().tobytes(), name


def test_what_torch_saves(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    torch.save(TENSORS | NEWER, path)
    check(path, TENSORS | NEWER)
    headers = read_file_headers(path)
    assert {name for name, header in headers.items() if header.strides is not None} == {
        "transposed",
        "slice",
        "column",
        "expanded",
    }


def test_what_old_torch_saved(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    torch.save(TENSORS, path, _use_new_zipfile_serialization=False)
    check(path, TENSORS)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol(tmp_path, protocol):
    torch.save(TENSORS, tmp_path / "m.pt", pickle_protocol=protocol)
    check(tmp_path / "m.pt", TENSORS)


def test_state_dict_of_a_module_and_one_in_a_checkpoint(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    torch.save(module.state_dict(), tmp_path / "a.pt")
    check(tmp_path / "a.pt", module.state_dict())
    wrapped = {"epoch": 3, "loss": 0.5, "name": "x", "state_dict": module.state_dict()}
    torch.save(wrapped, tmp_path / "b.pt")
    check(tmp_path / "b.pt", module.state_dict())
    torch.save({"lr": 0.1, "steps": [1, 2], "model": {}}, tmp_path / "c.pt")
    with pytest.raises(CheckpointError, match="no tensors by name"):
        read_file_headers(tmp_path / "c.pt")


def test_nothing_is_read_before_it_is_asked_for(tmp_path):
    torch.save({"w": torch.ones(1000)}, tmp_path / "m.bin")
    header = read_file_headers(tmp_path / "m.bin")["w"]
    view = MappedFiles().read("w", header).array
    assert not view.flags.owndata


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def zip_with(path, data, **more):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        for name, value in more.items():
            archive.writestr(f"archive/{name}", value)
    return path


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_that_would_run_code(tmp_path, new, protocol):
    trace = tmp_path / "trace"
    path = tmp_path / "m.bin"
    torch.save(
        {"w": torch.ones(2), "x": Evil(trace)},
        path,
        _use_new_zipfile_serialization=new,
        pickle_protocol=protocol,
    )
    with pytest.raises(CheckpointError, match=r"m\.bin is refused: its pickle names \w+\.mkdir"):
        read_file_headers(path)
    assert not trace.exists()
    torch.load(path, weights_only=False)
    assert trace.exists()  # the file does what the test is about


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"(S'ls'\nios\nsystem\n.", "opcode STRING"),
        (b"(ios\nsystem\n.", "opcode INST"),
        (b"ccollections\nOrderedDict\n}b.", "malformed"),
        (b"ccollections\nOrderedDict\n)R(X\x01\x00\x00\x00aK\x01db.", "opcode DICT"),
        (b"ctorch\nFloatStorage\n)R.", "calls str"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n)R.", "malformed"),
        (b"\x80\x04\x82\x01.", "opcode EXT1"),
        (b"ccopyreg\n_reconstructor\n.", "names copyreg._reconstructor"),
        (b"cbuiltins\neval\n.", "names builtins.eval"),
        (b"ctorch\nFloatStorage.__class__\n.", "names torch.FloatStorage.__class__"),
        (b"}", "malformed"),
        (b".", "malformed"),
        (b"Q.", "malformed"),
        (b"h\x05.", "malformed"),
        (b"}]K\x01s.", "doesn't belong"),
        (pickle.dumps({(1, 2): 3}), "doesn't belong"),
        (pickle.dumps([1, 2]), "no tensors"),
        (pickle.dumps(OrderedDict([(1, 2)])), "no tensors"),
    ],
)
def test_other_pickles(tmp_path, data, message):
    with pytest.raises(CheckpointError, match=message):
        read_file_headers(zip_with(tmp_path / "m.bin", data))


def storage_pickle(size=4, offset=0, shape=(4,), strides=(1,), key="0"):
    """A tensor whose numbers are as given."""

    class Pickler(pickle._Pickler):
        def persistent_id(self, value):
            if value is Pickler:
                return ("storage", torch.FloatStorage, key, "cpu", size)
            return None

        def save_type(self, value):
            self.write(b"c" + f"{value.__module__}\n{value.__name__}\n".encode())

        dispatch = pickle._Pickler.dispatch.copy()
        dispatch[type] = save_type

    class Tensor:
        def __reduce__(self):
            rebuild = torch._utils._rebuild_tensor_v2
            return rebuild, (Pickler, offset, shape, strides, False, OrderedDict())

    stream = io.BytesIO()
    Pickler(stream, 2).dump({"w": Tensor()})
    return stream.getvalue().replace(b"torch._C", b"torch")


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"offset": 1}, "w lies beyond its storage of 16 bytes"),
        ({"shape": (5,)}, "beyond its storage"),
        ({"strides": (2,)}, "beyond its storage"),
        ({"shape": (2**62, 2**62), "strides": (0, 0)}, None),
        ({"offset": -1}, "strides"),
        ({"shape": (-1,)}, "strides"),
        ({"shape": (4, 1)}, "strides"),
        ({"shape": (4.0,)}, "strides"),
        ({"key": "1"}, "data of w are not in it"),
        ({"size": "4"}, "storage is described"),
        ({}, None),
    ],
)
def test_numbers_are_checked(tmp_path, numbers, message):
    path = zip_with(tmp_path / "m.bin", storage_pickle(**numbers), **{"data/0": b"\0" * 16})
    if message is None:
        assert read_file_headers(path)["w"].numel
    else:
        with pytest.raises(CheckpointError, match=message):
            read_file_headers(path)


def test_other_zip_files(tmp_path):
    path = tmp_path / "m.bin"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme", "")
    with pytest.raises(CheckpointError, match=r"without one data\.pkl"):
        read_file_headers(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 1_000_000)
    with pytest.raises(CheckpointError, match="is compressed"):
        read_file_headers(path)
    zip_with(path, pickle.dumps({}), byteorder="big")
    with pytest.raises(CheckpointError, match="big-endian"):
        read_file_headers(path)


def test_other_files(tmp_path):
    path = tmp_path / "m.bin"
    for data in (b"", b"PK", b"PK\x03\x04", b"\0" * 100, pickle.dumps(7), pickle.dumps([1])):
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match=r"m\.bin"):
            read_file_headers(path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    contents = []
    for new in (True, False):
        torch.save(
            {"a": torch.ones(3), "b": torch.zeros(2, 2)},
            folder / "m",
            _use_new_zipfile_serialization=new,
        )
        contents.append((folder / "m").read_bytes())
    return contents


@given(data=st.data())
def test_damaged_files_are_refused_or_stay_inside(saved, tmp_path_factory, data):
    content = bytearray(data.draw(st.sampled_from(saved)))
    cut = data.draw(st.integers(0, len(content)))
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.bin"
    path.write_bytes(content[: cut or len(content)])
    try:
        headers = read_file_headers(path)
    except CheckpointError:
        return
    files = MappedFiles()
    for name, header in headers.items():
        assert files.read(name, header).array.shape == header.shape


def test_a_folder_of_shards(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    torch.save({"a": torch.ones(2)}, tmp_path / "pytorch_model-1.bin")
    torch.save({"b": torch.ones(3)}, tmp_path / "pytorch_model-2.bin")
    torch.save({"momentum": torch.ones(3)}, tmp_path / "optimizer.pt")
    torch.save({"lr": 1}, tmp_path / "training_args.bin")
    files = find_model(str(tmp_path))
    assert files.kind == "pt"
    assert files.tensor_headers().keys() == {"a", "b"}
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text('{"weight_map": {"a": "pytorch_model-1.bin", "b": "pytorch_model-3.bin"}}')
    with pytest.raises(CheckpointError, match=r"lacks 1 of 2 .*pytorch_model-3\.bin"):
        files.tensor_headers()
    index.write_text('{"weight_map": {"c": "pytorch_model-1.bin"}}')
    with pytest.raises(CheckpointError, match=r"c \(in pytorch_model-1\.bin\)"):
        files.tensor_headers()
    assert TORCH.is_in(tmp_path)


def test_legacy_storage_that_is_cut_short(saved, tmp_path):
    path = tmp_path / "m.bin"
    path.write_bytes(saved[1][:-4])
    with pytest.raises(CheckpointError, match="ends beyond it; download it again"):
        read_file_headers(path)


def test_values_are_those_of_torch(tmp_path):
    values = torch.randn(5, 7)
    torch.save({"w": values.T}, tmp_path / "m.bin")
    header = read_file_headers(tmp_path / "m.bin")["w"]
    np.testing.assert_array_equal(MappedFiles().read("w", header).array, values.T.numpy())
    assert struct.calcsize("f") * values.numel() == header.nbytes
