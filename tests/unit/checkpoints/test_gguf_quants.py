"""Every element type of GGUF: through a file, against the gguf package or ggml's own loops."""

import gguf
import numpy as np
import pytest

from octavo.checkpoints import gguf_quants
from octavo.checkpoints.gguf_file import BLOCK_TYPES
from octavo.checkpoints.locate import find_model
from octavo.types.errors import CheckpointError
from support.tiny_gguf import write_gguf

ROWS, COLUMNS = 6, 512
SIZES = {name: (block, nbytes) for name, block, nbytes in BLOCK_TYPES.values()}
PLAIN = [name for name, (block, _) in SIZES.items() if block == 1]
OWN = ("Q8_1", "Q8_K", "Q1_0", "Q2_0")
BLOCKS = [name for name in SIZES if name not in PLAIN and name not in OWN]
# What comes back from rounding to the type, relative to the largest value.
TOLERANCE = {"Q4_0": 0.1, "Q4_1": 0.07, "Q5_0": 0.05, "Q5_1": 0.04, "Q8_0": 0.005}
TOLERANCE |= {"TQ1_0": 0.51, "TQ2_0": 0.51, "MXFP4": 0.25}


def through_a_file(folder, dtype, data):
    """(tensor, header) of a matrix whose stored bytes are `data`."""
    path = write_gguf(folder / "m.gguf", "qwen3")
    writer = gguf.GGUFWriter(path, "qwen3")
    for key in ("head_count", "head_count_kv"):
        writer.add_uint32(f"qwen3.attention.{key}", 2)
    kind = gguf.GGMLQuantizationType[dtype]
    writer.add_tensor("blk.0.ffn_gate.weight", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    files = find_model(str(path))
    ((name, raw),) = files.tensors()
    ((packed_name, packed),) = files.tensors(packed=True)
    assert name == packed_name == "model.layers.0.mlp.gate_proj.weight"
    return raw, packed, files.tensor_headers()[name]


@pytest.mark.parametrize("dtype", BLOCKS)
def test_random_blocks(tmp_path, dtype):
    """Any bytes are blocks; what they mean is the package's business."""
    block, nbytes = SIZES[dtype]
    rng = np.random.default_rng(len(dtype))
    # Below 0x40 in every byte, so that no scale is infinite or no number.
    data = rng.integers(0, 0x40, (ROWS, COLUMNS // block * nbytes)).astype(np.uint8)
    expected = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[dtype])
    raw, packed, header = through_a_file(tmp_path, dtype, data)
    assert (header.dtype, header.shape, header.nbytes) == (dtype, (ROWS, COLUMNS), data.nbytes)
    assert raw.dtype == "F32"
    assert raw.array.dtype == np.float32
    assert np.isfinite(expected).all()
    assert np.any(expected)
    np.testing.assert_array_equal(raw.array, expected)
    assert packed.dtype == dtype
    np.testing.assert_array_equal(packed.array, data)


@pytest.mark.parametrize("dtype", sorted(TOLERANCE))
def test_round_trip(tmp_path, dtype):
    values = np.random.default_rng(1).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    data = gguf.quants.quantize(values, gguf.GGMLQuantizationType[dtype])
    raw, _, _ = through_a_file(tmp_path, dtype, data)
    worst = np.abs(raw.array - values).max() / np.abs(values).max()
    assert worst < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", PLAIN)
def test_plain_types(tmp_path, dtype):
    values = np.arange(-5, 15).reshape(4, 5)
    if dtype == "BF16":
        floats = values.astype(np.float32)
        data = (floats.view(np.uint32) >> 16).astype(np.uint16)
        raw, _, header = through_a_file(tmp_path, dtype, data.view(np.uint8))
    else:
        kinds = {"F": "f", "I": "i"}
        data = values.astype(f"{kinds[dtype[0]]}{int(dtype[1:]) // 8}")
        raw, _, header = through_a_file(tmp_path, dtype, data)
    assert (header.dtype, header.shape, header.direct) == (dtype, (4, 5), True)
    assert raw.dtype == dtype
    np.testing.assert_array_equal(raw.array, data)


def half(block, at=0):
    return float(block[at : at + 2].view(np.float16)[0])


def by_hand(dtype, block):
    """One block by ggml's loops (dequantize_row_* of ggml-quants.c)."""
    if dtype == "Q8_1":
        return [half(block) * int(q) for q in block[4:].view(np.int8)]
    if dtype == "Q8_K":
        return [float(block[:4].view(np.float32)[0]) * int(q) for q in block[4:260].view(np.int8)]
    if dtype == "Q1_0":
        signs = [int(block[2 + j // 8]) >> (j % 8) & 1 for j in range(128)]
        return [half(block) if sign else -half(block) for sign in signs]
    return [((int(block[2 + j // 4]) >> (j % 4 * 2) & 3) - 1) * half(block) for j in range(64)]


@pytest.mark.parametrize("dtype", OWN)
def test_types_that_the_package_does_not_read(dtype):
    block, nbytes = SIZES[dtype]
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 256, (3, 512 // block * nbytes)).astype(np.uint8)
    blocks = rows.reshape(-1, nbytes)
    blocks[:, :4] = np.frombuffer(np.float32(0.75).tobytes(), np.uint8)
    blocks[:, :2] = np.frombuffer(np.float16(0.75).tobytes(), np.uint8)
    expected = [value for each in blocks for value in by_hand(dtype, each)]
    found = gguf_quants.dequantize("w", dtype, rows)
    assert (found.shape, found.dtype) == ((3, 512), np.float32)
    np.testing.assert_array_equal(found.ravel(), np.array(expected, np.float32))


def test_sizes_are_those_of_the_package():
    for number, (name, *sizes) in BLOCK_TYPES.items():
        kind = getattr(gguf.GGMLQuantizationType, name, None)
        if kind is not None and name != "Q8_1":  # 36 bytes in ggml
            assert (int(kind), gguf.GGML_QUANT_SIZES[kind]) == (number, tuple(sizes))


def test_a_type_that_nobody_reads():
    with pytest.raises(CheckpointError, match=r"w has the GGUF type Q9_9.*upgrade it"):
        gguf_quants.dequantize("w", "Q9_9", np.zeros((1, 18), np.uint8))
