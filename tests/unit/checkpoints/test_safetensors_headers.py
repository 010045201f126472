"""Headers of safetensors files: what the package writes is read, what is broken is refused."""

import contextlib
import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from octavo.checkpoints.safetensors_headers import read_file_headers
from octavo.checkpoints.tensors import MappedFiles
from octavo.checkpoints.weight_files import SAFETENSORS
from octavo.types.errors import CheckpointError

TENSORS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.arange(5, dtype=np.float16),
    "c": np.zeros((0, 4), np.int64),
    "d": np.array(7, np.uint8),
}


def write_raw(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def write_index(folder, weight_map):
    (folder / SAFETENSORS.index).write_text(json.dumps({"weight_map": weight_map}))


def test_what_the_package_writes(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file(TENSORS, path, metadata={"format": "pt"})
    headers = SAFETENSORS.headers(tmp_path)
    files = MappedFiles()
    assert headers.keys() == TENSORS.keys()
    for name, expected in TENSORS.items():
        tensor = files.read(name, headers[name])
        assert tensor.array.dtype == expected.dtype
        np.testing.assert_array_equal(tensor.array, expected)
        assert headers[name].numel == expected.size
        assert headers[name].nbytes == expected.nbytes


def test_bfloat16_comes_as_raw_words(tmp_path):
    words = np.array([0x3F80, 0xC000], "<u2")
    entry = {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}
    path = write_raw(tmp_path / "m.safetensors", {"w": entry}, words.tobytes())
    name, dtype, array = MappedFiles().read("w", read_file_headers(path)["w"])
    assert (name, dtype) == ("w", "BF16")
    np.testing.assert_array_equal(array, words)


def test_unaligned_data_is_read(tmp_path):
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} '
    path = write_raw(tmp_path / "m.safetensors", header, np.float32(1.5).tobytes())
    header = read_file_headers(path)["w"]
    assert header.offset % 4
    assert MappedFiles().read("w", header).array.tolist() == [1.5]


def test_sub_byte_types_are_measured_and_not_read(tmp_path):
    entry = {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}
    header = read_file_headers(write_raw(tmp_path / "m", {"w": entry}, b"ab"))["w"]
    assert header.nbytes == 2
    with pytest.raises(CheckpointError, match=r"w in .* element type F4"):
        MappedFiles().read("w", header)


def entry(**changes):
    return {"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]} | changes}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        ({"w": 3}, "not described by an object"),
        (entry(dtype="F99"), "unknown dtype 'F99'"),
        (entry(dtype=["U8"]), "unknown dtype"),
        (entry(shape=[-4]), r"shape \[-4\]"),
        (entry(shape=[4.0]), r"shape \[4.0\]"),
        (entry(shape=[True, 4]), "shape"),
        (entry(shape="4"), "shape"),
        (entry(data_offsets=[0]), "data_offsets"),
        (entry(data_offsets=[3, 1]), "3..1"),
        (entry(data_offsets=[0, 5]), "0..5 of 4.*cut short"),
        (entry(data_offsets=[0, 2**70]), "cut short"),
        (entry(shape=[5]), r"U8\[5\] can't fill 4 bytes"),
        (entry() | {"v": entry()["w"]}, "share bytes"),
        (b'{"w":1,"w":2}', "'w' appears twice"),
    ],
)
def test_malformed_headers(tmp_path, header, message):
    path = write_raw(tmp_path / "m.safetensors", header, b"data")
    with pytest.raises(CheckpointError, match=message):
        read_file_headers(path)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(data)
    with contextlib.suppress(CheckpointError):
        read_file_headers(path)


def test_header_longer_than_the_file(tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    with pytest.raises(CheckpointError, match="malformed"):
        read_file_headers(path)
    with pytest.raises(CheckpointError, match="can't read"):
        read_file_headers(tmp_path / "absent")


@pytest.fixture
def sharded(tmp_path):
    save_file({"a": TENSORS["a"]}, tmp_path / "model-1.safetensors")
    save_file({"b": TENSORS["b"], "d": TENSORS["d"]}, tmp_path / "model-2.safetensors")
    save_file({"x": TENSORS["a"]}, tmp_path / "extra.safetensors")
    write_index(
        tmp_path,
        {"a": "model-1.safetensors", "b": "model-2.safetensors", "d": "model-2.safetensors"},
    )
    return tmp_path


def test_index_chooses_the_files(sharded):
    headers = SAFETENSORS.headers(sharded)
    assert {name: header.file.name for name, header in headers.items()} == {
        "a": "model-1.safetensors",
        "b": "model-2.safetensors",
        "d": "model-2.safetensors",
    }


def test_missing_shard(sharded):
    (sharded / "model-2.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"lacks 1 of 2 .*model-2.safetensors; finish"):
        SAFETENSORS.headers(sharded)


def test_tensor_absent_from_its_shard(sharded):
    write_index(sharded, {"a": "model-1.safetensors", "q": "model-2.safetensors"})
    with pytest.raises(CheckpointError, match=r"do not hold: q \(in model-2.safetensors\)"):
        SAFETENSORS.headers(sharded)


def test_tensor_in_two_shards(sharded):
    save_file({"a": TENSORS["a"], "b": TENSORS["b"]}, sharded / "model-1.safetensors")
    with pytest.raises(CheckpointError, match=r"b is in both .*model-1.* and .*model-2"):
        SAFETENSORS.headers(sharded)


@pytest.mark.parametrize(
    "index",
    [
        "[]",
        "{",
        '{"weight_map": []}',
        '{"weight_map": {}}',
        '{"weight_map": {"a": "../a.safetensors"}}',
        '{"weight_map": {"a": 3}}',
        '{"weight_map": {"a": "x", "a": "y"}}',
    ],
)
def test_malformed_index(sharded, index):
    (sharded / SAFETENSORS.index).write_text(index)
    with pytest.raises(CheckpointError, match=r"index\.json is malformed"):
        SAFETENSORS.headers(sharded)


def test_without_index_every_file_counts(sharded):
    (sharded / SAFETENSORS.index).unlink()
    assert SAFETENSORS.headers(sharded).keys() == {"a", "b", "d", "x"}
    save_file({"a": TENSORS["a"]}, sharded / "consolidated.safetensors")
    assert SAFETENSORS.headers(sharded).keys() == {"a", "b", "d", "x"}
    save_file({"a": TENSORS["a"]}, sharded / "model-3.safetensors")
    with pytest.raises(CheckpointError, match="a is in both"):
        SAFETENSORS.headers(sharded)


def test_folder_without_safetensors(tmp_path):
    with pytest.raises(CheckpointError, match=r"no weights \(\*\.safetensors\)"):
        SAFETENSORS.headers(tmp_path)


def test_file_that_shrank(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file(TENSORS, path)
    header = read_file_headers(path)["a"]
    path.write_bytes(path.read_bytes()[: header.offset + 4])
    with pytest.raises(CheckpointError, match="incomplete"):
        MappedFiles().raw_bytes(header)
