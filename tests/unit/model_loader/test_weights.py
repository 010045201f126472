import numpy as np
import pytest
import torch
from torch import nn

from octavo.checkpoints.tensors import RawTensor
from octavo.model_loader.weights import as_torch, check_fit, torch_tensors
from octavo.models.common.weights import WeightMap, WeightTarget
from octavo.types.errors import CheckpointError


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("F32", torch.float32),
        ("F16", torch.float16),
        ("BF16", torch.bfloat16),
        ("F8_E4M3", torch.float8_e4m3fn),
        ("F8_E5M2", torch.float8_e5m2),
        ("I8", torch.int8),
        ("I64", torch.int64),
        ("BOOL", torch.bool),
    ],
)
def test_every_dtype_keeps_its_bits(name, dtype):
    values = torch.tensor([[0.0, 1.0, -2.0], [0.5, 3.0, 96.0]]).to(dtype)
    as_numpy = {"BF16": torch.uint16, "F8_E4M3": torch.uint8, "F8_E5M2": torch.uint8}
    array = values.view(as_numpy.get(name, dtype)).numpy()
    tensor = as_torch(RawTensor("x", name, array))
    assert tensor.dtype == dtype
    assert tensor.shape == (2, 3)
    assert torch.equal(tensor.float(), values.float())


def test_data_stay_where_they_are():
    array = np.arange(6, dtype=np.float32)
    ((name, tensor),) = torch_tensors([("x", RawTensor("x", "F32", array))])
    assert name == "x"
    assert tensor.data_ptr() == array.ctypes.data


def fit(expected, found, tied=()):
    targets = {
        name: WeightTarget(nn.Module(), "weight", 0, shape) for name, shape in expected.items()
    }
    check_fit(WeightMap(targets, frozenset(tied)), found)


def test_what_fits():
    fit({"a": (1, 2), "b": (3,)}, {"b": (3,), "a": (1, 2)})
    fit({"a": (1,)}, {"a": (1,), "head": (5,), "l.0.rotary_emb.inv_freq": (2,)}, tied=["head"])


def test_everything_wrong_is_listed_with_the_nearest_name():
    with pytest.raises(CheckpointError) as error:
        fit(
            {"layers.0.q_proj.weight": (4, 4), "norm.weight": (4,), "embed": (9, 4)},
            {"layers.0.q_porj.weight": (4, 4), "norm.weight": (5,), "other": (1,)},
        )
    lines = str(error.value).splitlines()
    assert "  missing: layers.0.q_proj.weight (the file has layers.0.q_porj.weight)" in lines
    assert "  missing: embed" in lines
    assert "  not in the model: layers.0.q_porj.weight" in lines
    assert "  not in the model: other" in lines
    assert "  of another shape: norm.weight: [5] in the file, [4] by the config" in lines


def test_long_lists_are_cut():
    expected = {f"t{i}": (1,) for i in range(100)}
    with pytest.raises(CheckpointError) as error:
        fit(expected, {})
    assert str(error.value).count("missing: ") == 20
    assert "and 80 more" in str(error.value)
