"""GGUF files that llama.cpp's converter wrote have the weights and config they were made from."""

import dataclasses

import numpy as np
import pytest

from octavo.checkpoints.gguf_families import GGUF_FAMILIES
from octavo.checkpoints.locate import find_model
from octavo.config.architectures import model_arch
from octavo.config.encoder_families import ENCODERS
from octavo.config.families import FAMILIES as OWN
from support.gguf_families import FAMILIES, hf_config, unpack, weight

# What a converter does not write, or writes under another name.
UNTOLD = {
    # seq_length, if the config has one; the inner size, which is always four times the outer
    "bloom": {"max_position_embeddings", "max_model_len", "intermediate_size"},
    "gemma2": {"attention_scale"},  # query_pre_attn_scalar
    "internlm2": {"architecture"},  # as Llama, whose arithmetic it has
    "mpt": {"architecture", "intermediate_size"},  # one class under two names
    "olmo3": {"sliding_rope"},  # one wavelength for both kinds of layers
}
ROPES = ("rope", "sliding_rope")


@pytest.mark.parametrize("family", FAMILIES)
def test_weights(tmp_path, family):
    files = find_model(str(unpack(family, tmp_path)))
    headers = files.tensor_headers()
    found = dict(files.tensors())
    assert found.keys() == headers.keys()
    for name, raw in found.items():
        assert headers[name].shape == raw.array.shape, name
        if family != "internlm2":
            expected = weight(name, raw.array.shape)
            np.testing.assert_array_equal(raw.array, expected, f"{family}: {name}")


@pytest.mark.parametrize("family", FAMILIES)
def test_direct_headers_are_the_bytes_of_the_file(tmp_path, family):
    """What a reader may copy without asking is what it would be given."""
    files = find_model(str(unpack(family, tmp_path)))
    content = files.path.read_bytes()
    raws = dict(files.tensors())
    for name, header in files.tensor_headers().items():
        if header.direct:
            stored = content[header.offset : header.offset + header.nbytes]
            assert raws[name].array.tobytes() == stored, name
    assert any(header.direct for header in files.tensor_headers().values())


def test_internlm2_has_the_rows_of_its_whole_projection(tmp_path):
    """KV head by head: its queries, its key, its value."""
    files = find_model(str(unpack("internlm2", tmp_path)))
    found = {name: raw.array for name, raw in files.tensors()}
    for layer in range(2):
        whole = weight(f"model.layers.{layer}.attention.wqkv.weight", (64, 32))
        parts = [found[f"model.layers.{layer}.self_attn.{p}_proj.weight"] for p in "qkv"]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
        gate = weight(f"model.layers.{layer}.feed_forward.w1.weight", (24, 32))
        np.testing.assert_array_equal(found[f"model.layers.{layer}.mlp.gate_proj.weight"], gate)


@pytest.mark.parametrize("family", FAMILIES)
def test_config(tmp_path, family):
    ours = model_arch(find_model(str(unpack(family, tmp_path))).config())
    theirs = model_arch(hf_config(family))
    skipped = {"dtype", "eos_token_ids", "bos_token_id", *ROPES} | UNTOLD.get(family, set())
    for field in dataclasses.fields(theirs):
        if field.name not in skipped:
            assert getattr(ours, field.name) == getattr(theirs, field.name), field.name
    for name in set(ROPES) - UNTOLD.get(family, set()):
        mine, original = getattr(ours, name), getattr(theirs, name)
        assert (mine.theta, mine.partial) == (original.theta, original.partial)
        scaling = dict(mine.scaling or {})
        if family == "phi3-longrope":
            # transformers computes it from the lengths; the file has the result.
            assert scaling.pop("attention_factor") == 1.0
            for key in ("long_factor", "short_factor"):
                assert scaling[key] == pytest.approx(original.scaling[key])
                scaling[key] = original.scaling[key]
        assert scaling == (original.scaling or {})


def test_every_family_has_a_class():
    for arch, family in GGUF_FAMILIES.items():
        encoder = family.architecture.removesuffix("Model")
        assert family.architecture in OWN or encoder in ENCODERS, arch
