"""GGUF headers: equal to the gguf package's reader, and safe on anything else."""

import contextlib
import struct

import gguf
import pytest
from gguf.constants import GGML_QUANT_SIZES
from hypothesis import given
from hypothesis import strategies as st

from octavo.checkpoints.gguf_file import BLOCK_TYPES, GGUFFile
from octavo.checkpoints.tensors import MappedFiles
from octavo.types.errors import CheckpointError
from support.tiny_gguf import TOKENS, write_gguf


def open_bytes(path, data):
    path.write_bytes(data)
    return GGUFFile(path, MappedFiles())


def header(num_tensors=0, num_keys=0, version=3):
    return struct.pack("<4sIQQ", b"GGUF", version, num_tensors, num_keys)


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def tensor(name="t", dims=(32,), kind=0, offset=0):
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def test_equals_the_package(tmp_path):
    path = write_gguf(
        tmp_path / "m.gguf",
        quantize=gguf.GGMLQuantizationType.Q8_0,
        metadata={"a.bool": True, "a.floats": [0.5, 1.5], "a.empty": "", "general.alignment": 64},
    )
    ours, theirs = GGUFFile(path, MappedFiles()), gguf.GGUFReader(path)
    for key, field in theirs.fields.items():
        if not key.startswith("GGUF."):
            assert ours.get(key) == field.contents(), key
    assert len(ours.headers) == len(theirs.tensors)
    for expected in theirs.tensors:
        found = ours.headers[expected.name]
        assert found.dtype == expected.tensor_type.name
        assert found.shape == tuple(reversed(expected.shape.tolist()))
        assert (found.offset, found.nbytes) == (expected.data_offset, expected.n_bytes)


def test_block_types_are_the_package_s():
    ours = {name: sizes for name, *sizes in BLOCK_TYPES.values()}
    for kind, sizes in GGML_QUANT_SIZES.items():
        # The package has the Q8_1 of old, of two floats; ggml's has had two halves since.
        if kind.name in ours and kind.name != "Q8_1":
            assert BLOCK_TYPES[kind.value] == (kind.name, *sizes)
    assert {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K"} <= ours.keys()


def test_items_and_absent_keys(tmp_path):
    file = GGUFFile(write_gguf(tmp_path / "m.gguf"), MappedFiles())
    assert file.item("tokenizer.ggml.tokens", 5) == TOKENS[5]
    assert file.item("tokenizer.ggml.token_type", 2) == 3
    assert file.get("absent") is None
    assert file.get("absent", 3) == 3
    assert "absent" not in file
    with pytest.raises(CheckpointError, match="no item 40"):
        file.item("tokenizer.ggml.tokens", 40)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GGUX" + header()[4:], "does not begin with 'GGUF'"),
        (header(version=1), "version 1 is not readable"),
        (header()[:20], "ends inside its header"),
        (header(num_keys=1 << 40), "ends inside its header"),
        (header(num_keys=1) + struct.pack("<Q", 1 << 63), "passes the end"),
        (header(num_keys=1) + string(b"\xff"), "not UTF-8"),
        (header(num_keys=1) + string("k") + struct.pack("<I", 99), "unknown type 99"),
        (header(num_keys=1) + string("k") + struct.pack("<IIQ", 9, 9, 1), "array of the unknown"),
        (header(num_keys=1) + string("k") + struct.pack("<IIQ", 9, 4, 1 << 61), "passes the end"),
        (header(num_keys=1) + string("k") + struct.pack("<IIQQ", 9, 8, 1, 1 << 61), "passes the"),
        (header(num_keys=2) + (string("k") + struct.pack("<IB", 7, 1)) * 2, "k appears twice"),
        (header(1) + string("t") + struct.pack("<I", 5), "5 dimensions"),
        (header(1) + tensor(kind=77), "unknown element type 77"),
        (header(1) + tensor(dims=(33,), kind=8), "33 elements; blocks have 32"),
        (header(1) + tensor(dims=(1 << 40,)), "download it again"),
        (header(1) + tensor(offset=1 << 60), "download it again"),
        (header(2) + tensor(dims=(0,)) * 2 + bytes(64), "t appears twice"),
        (
            header(0, 1) + string("general.alignment") + struct.pack("<II", 4, 3),
            "not a power of two",
        ),
    ],
)
def test_malformed_files(tmp_path, data, message):
    with pytest.raises(CheckpointError, match=message) as raised:
        open_bytes(tmp_path / "m.gguf", data)
    assert "m.gguf" in str(raised.value)


@given(st.binary(max_size=300), st.integers(0, 3), st.integers(0, 3))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data, num_tensors, num_keys):
    path = tmp_path_factory.getbasetemp() / "any.gguf"
    with contextlib.suppress(CheckpointError):
        open_bytes(path, header(num_tensors, num_keys) + data)


def test_cut_file(tmp_path):
    path = write_gguf(tmp_path / "m.gguf")
    whole = path.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 100, 3):
        with pytest.raises(CheckpointError):
            open_bytes(tmp_path / "cut.gguf", whole[:size])
    with pytest.raises(CheckpointError, match="can't read"):
        open_bytes(tmp_path / "cut.gguf", b"")
