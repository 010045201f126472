"""Models that keep their weights packed: from GGUF blocks, from floats, from nothing."""

import dataclasses

import gguf
import pytest
import torch

from octavo.checkpoints.locate import find_model
from octavo.checkpoints.model_files import ModelFiles
from octavo.layers.quantization.interface import QUANT_METHODS
from octavo.model_loader.loader import load_model
from octavo.model_loader.packed import packing_layers
from octavo.model_loader.process import weight_bytes
from support.paged_model import PagedModel
from support.tiny_gguf import hf_weights, write_gguf
from support.tiny_models import model_context, save_tiny

Kind = gguf.GGMLQuantizationType
GENTLE = {"initializer_range": 0.1}  # rounding moves logits, and not what attention looks at
WIDE = GENTLE | {"hidden_size": 96}
PROMPT = [3, 9, 17, 30, 4, 8, 21, 12, 5]


def load(files: ModelFiles, quantization: str = "none", load_format: str = "auto"):
    context = dataclasses.replace(
        model_context(files), quantization=QUANT_METHODS.get(quantization)()
    )
    return load_model(context, files, load_format)


def logits(model):
    paged = PagedModel(model, num_blocks=20)
    return paged.step([(paged.sequence(), PROMPT)])[0]


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3", "gemma2"])
@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q8_0])
@pytest.mark.parametrize("tied", [False, True])
def test_blocks_give_the_logits_of_unpacked_weights(tmp_path, arch, kind, tied, caplog):
    weights = hf_weights(arch, tied)
    files = find_model(str(write_gguf(tmp_path / "m.gguf", arch, weights=weights, quantize=kind)))
    with caplog.at_level("INFO"):
        packed = load(files, "gguf")
    plain = load(files)
    expected = logits(plain)
    assert (logits(packed) - expected).abs().max() <= 1e-3 * expected.abs().max()
    assert weight_bytes(packed) < 0.6 * weight_bytes(plain)
    count = 2 * 7 + 1 + (not tied)
    assert f"{count} weights are packed" in caplog.text
    assert "can't be packed" not in caplog.text


def test_types_that_cannot_be_packed_are_unpacked_and_named(tmp_path, caplog):
    weights = hf_weights("llama")
    files = find_model(str(write_gguf(tmp_path / "m.gguf", weights=weights, quantize=Kind.BF16)))
    packed = load(files, "gguf")
    assert torch.equal(logits(packed), logits(load(files)))
    assert "can't be packed and stay as they are" in caplog.text
    assert "model.embed_tokens" in caplog.text


def test_float_checkpoints(tmp_path, caplog):
    save_tiny("llama", tmp_path, **WIDE)
    files = find_model(str(tmp_path))
    exact = logits(load(files))
    errors = {}
    for name in ("int8", "int4"):
        with caplog.at_level("INFO"):
            errors[name] = (logits(load(files, name)) - exact).norm() / exact.norm()
    assert 0 < errors["int8"] < 0.03 < errors["int4"] < 0.5
    assert "23 weights are packed" in caplog.text


def test_a_gguf_file_can_be_rounded_anew(tmp_path):
    files = find_model(str(write_gguf(tmp_path / "m.gguf", quantize=Kind.Q8_0)))
    exact = logits(load(files))
    assert (logits(load(files, "int8")) - exact).norm() < 0.02 * exact.norm()


def test_widths_that_make_no_groups(tmp_path, caplog):
    """72 inputs: everything but the down projections (96) stays float32, and the log says so."""
    save_tiny("llama", tmp_path, initializer_range=0.1)
    files = find_model(str(tmp_path))
    model = load(files, "int8")
    down = {path for path, _, method in packing_layers(model) if method.num_packed}
    assert down == {
        f"model.layers.{i}.{name}"
        for i in range(3)
        for name in ("mlp.down_proj", "self_attn.o_proj")
    }
    assert "no multiple of 32" in caplog.text
    exact = logits(load(files))
    assert (logits(model) - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("family", ["gpt2", "phi3", "gpt-neox", "transformers"])
def test_other_layouts(tmp_path, family):
    """Transposed weights, fused ones, ones that go head by head, and the Transformers backend."""
    save_tiny("llama-tied" if family == "transformers" else family, tmp_path, **GENTLE)
    files = find_model(str(tmp_path))
    context = model_context(files)
    if family == "transformers":
        arch = dataclasses.replace(context.arch, architecture="TransformersForCausalLM")
        context = dataclasses.replace(context, arch=arch)
    exact = logits(load_model(context, files))
    context = dataclasses.replace(context, quantization=QUANT_METHODS.get("int8")())
    packed = load_model(context, files)
    error = (logits(packed) - exact).norm() / exact.norm()
    assert 0 < error < 0.05


def test_dummy_weights(tmp_path):
    save_tiny("llama", tmp_path, **WIDE)
    files = find_model(str(tmp_path))
    first, second = (load(files, "int4", "dummy") for _ in range(2))
    assert all(method.num_packed for _, _, method in packing_layers(first))
    found = logits(first)
    assert found.isfinite().all()
    assert found.abs().max() > 0
    assert torch.equal(found, logits(second))


def test_no_layer_holds_floats_while_weights_are_read(tmp_path):
    save_tiny("llama", tmp_path, **WIDE)
    files = find_model(str(tmp_path))
    context = dataclasses.replace(model_context(files), quantization=QUANT_METHODS.get("int8")())
    model = load_model(context, files)
    for name, parameter in model.named_parameters():
        assert parameter.dim() == 1, f"{name} is a matrix in float32"
