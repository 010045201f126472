"""The memory plan counts packed weights as they are kept."""

from __future__ import annotations

import dataclasses

import gguf
import pytest

from octavo.checkpoints.locate import find_model
from octavo.config.engine_options import EngineOptions
from octavo.config.resolve import ModelFacts, resolve
from octavo.engine import byte_counts
from octavo.engine.byte_counts import ATTENTION, EMBEDDING, MLP, NORMS, OUTPUT
from octavo.engine.packed_bytes import packed_bytes
from octavo.kernels.op import kernels_for
from octavo.layers.quantization.interface import QUANT_METHODS
from octavo.layers.rotary import RotaryEmbedding
from octavo.model_loader.loader import load_model
from octavo.model_loader.packed import packing_layers
from octavo.model_loader.process import weight_bytes
from octavo.platforms.detect import detect_platform
from support.tiny_gguf import hf_weights, write_gguf
from support.tiny_models import model_context, save_tiny

Kind = gguf.GGMLQuantizationType
SHARE = 0.02


@pytest.fixture(scope="module")
def cpu():
    return detect_platform("cpu")


def planned_and_held(files, quantization, cpu):
    """(the plan's bytes by part, the model, its bytes without rotary tables)."""
    facts = ModelFacts(hf_config=files.config(), kind=files.kind)
    options = EngineOptions(model=str(files.path), quantization=quantization)
    config = resolve(options, cpu, "server", facts=facts)
    context = dataclasses.replace(
        model_context(files),
        kernels=kernels_for("cpu"),
        quantization=QUANT_METHODS.get(quantization)(),
    )
    model = load_model(context, files)
    rotary = {
        module.cos_sin.data_ptr(): module.cos_sin.nbytes
        for module in model.modules()
        if isinstance(module, RotaryEmbedding)
    }
    sizes = byte_counts.weight_bytes(config, files.tensor_headers())
    return sizes, model, weight_bytes(model) - sum(rotary.values())


def near(planned, held):
    assert abs(planned - held) <= SHARE * held, (planned, held)


@pytest.mark.parametrize(
    "family", ["llama", "llama-tied", "llama-biases", "qwen2", "qwen3", "gpt2"]
)
@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_float_checkpoints(tmp_path, cpu, family, quantization):
    save_tiny(family, tmp_path, **({} if family == "gpt2" else {"hidden_size": 96}))
    sizes, _, held = planned_and_held(find_model(str(tmp_path)), quantization, cpu)
    near(sum(sizes.values()), held)


def test_layers_that_stay_float(tmp_path, cpu):
    """72 inputs can't be packed, 96 can."""
    save_tiny("llama", tmp_path)
    sizes, model, held = planned_and_held(find_model(str(tmp_path)), "int8", cpu)
    near(sum(sizes.values()), held)
    assert any(method.num_plain for _, _, method in packing_layers(model))


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1, Kind.Q5_1, Kind.Q8_0, Kind.F16])
@pytest.mark.parametrize("tied", [False, True])
def test_gguf_blocks_part_by_part(tmp_path, cpu, kind, tied):
    weights = hf_weights("llama", tied)
    path = write_gguf(tmp_path / "m.gguf", weights=weights, quantize=kind)
    sizes, model, held = planned_and_held(find_model(str(path)), "gguf", cpu)
    found = dict.fromkeys((EMBEDDING, ATTENTION, MLP, NORMS, OUTPUT), 0)
    for name, _, method in packing_layers(model):
        found[part_of(name)] += method.nbytes
    for name, parameter in model.named_parameters():
        found[part_of(name)] += parameter.nbytes
    assert sum(found.values()) == held
    if kind != Kind.F16:
        assert sizes == found
    near(sum(sizes.values()), held)


def part_of(name):
    if "norm" in name:
        return NORMS
    if "lm_head" in name:
        return OUTPUT
    if "embed_tokens" in name:
        return EMBEDDING
    return ATTENTION if "self_attn" in name else MLP


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        ("model.norm.weight", (64,), "F32"),
        ("model.layers.0.self_attn.q_norm.weight", (4, 32), "F32"),
        ("transformer.wpe.weight", (512, 64), "F32"),
        ("model.decoder.embed_positions.weight", (512, 64), "F16"),
        ("model.layers.0.mlp.up_proj.weight", (64, 40), "F32"),
    ],
)
@pytest.mark.parametrize("quantization", ["int8", "int4", None])
def test_what_is_no_packed_weight(quantization, name, shape, dtype):
    assert packed_bytes(quantization, name, shape, dtype, is_vocabulary=False) is None


def test_int4_counts_the_vocabulary_in_8_bits():
    name, shape = "lm_head.weight", (64, 64)
    sizes = [
        packed_bytes("int4", name, shape, "F32", is_vocabulary=is_vocabulary)
        for is_vocabulary in (False, True)
    ]
    assert sizes == [64 * 2 * (16 + 8), 64 * 2 * (32 + 4)]
