"""Packed layers: fused parts, parts that stay plain, ties, sizes."""

import dataclasses

import pytest
import torch

from octavo.checkpoints.gguf_codes import group_codes
from octavo.kernels.op import reference_kernels
from octavo.layers.embedding import ParallelLMHead, VocabParallelEmbedding
from octavo.layers.linear import MergedColumnParallelLinear, ReplicatedLinear, RowParallelLinear
from octavo.layers.quantization.interface import QUANT_METHODS, PackingMethod
from octavo.layers.quantization.methods.gguf import GGUF
from octavo.layers.quantization.methods.int4 import Int4
from octavo.layers.quantization.methods.int8 import Int8
from octavo.types.errors import ConfigError
from support.codes import random_blocks, random_codes
from support.layer_context import layer_context, load_all

METHODS = {"int8": Int8, "int4": Int4, "gguf": GGUF}


def context(method, **changes):
    return layer_context(quantization=METHODS[method](), **changes)


@pytest.mark.parametrize("name", METHODS)
def test_registered(name):
    assert QUANT_METHODS.get(name) is METHODS[name]


@pytest.mark.parametrize(("name", "error"), [("int8", 0.01), ("int4", 0.2)])
@pytest.mark.parametrize("bias", [False, True])
def test_online(name, error, bias):
    torch.manual_seed(0)
    layer = MergedColumnParallelLinear(context(name), 64, [48, 20], bias=bias)
    assert isinstance(layer.method, PackingMethod)
    assert layer.weight.shape == (68, 64)
    assert layer.weight.untyped_storage().nbytes() == 4
    weights = [torch.randn(48, 64), torch.randn(20, 64)]
    tensors = {"weight": weights}
    if bias:
        tensors["bias"] = [torch.randn(48), torch.randn(20)]
    load_all(layer, tensors)
    assert layer.weight is None
    x = torch.randn(5, 64)
    exact = x @ torch.cat(weights).t() + (torch.cat(tensors["bias"]) if bias else 0)
    difference = (layer(x) - exact).norm() / exact.norm()
    assert 0 < difference < error
    assert (layer.method.num_packed, layer.method.num_plain) == (2, 0)


def test_codes_are_kept():
    layer = MergedColumnParallelLinear(context("gguf"), 256, [32, 48])
    made = [random_codes("Q4_K", 32, 256), random_codes("Q6_K", 48, 256)]
    for index, (codes, _) in enumerate(made):
        layer.load_codes(index, codes)
    layer.process_after_load()
    x = torch.randn(3, 256)
    exact = x @ torch.cat([torch.from_numpy(w) for _, w in made]).t()
    torch.testing.assert_close(layer(x), exact, rtol=1e-4, atol=0.05)
    forms = [codes.form for codes, _ in made]
    assert layer.method.nbytes == forms[0].num_bytes(32, 256) + forms[1].num_bytes(48, 256)


def test_a_plain_part_beside_packed_ones():
    """A file may keep one of the fused weights in a type that can't be packed."""
    torch.manual_seed(0)
    layer = MergedColumnParallelLinear(context("gguf"), 64, [16, 10, 6], bias=True)
    plain, bias = torch.randn(10, 64), torch.randn(32)
    (first, w0), (last, w2) = random_codes("Q8_0", 16, 64), random_codes("Q4_1", 6, 64, 1)
    layer.load_codes(0, first)
    layer.load_shard("weight", 1, plain)
    layer.load_codes(2, last)
    for index, part in enumerate(bias.split([16, 10, 6])):
        layer.load_shard("bias", index, part)
    layer.process_after_load()
    x = torch.randn(7, 64)
    exact = x @ torch.cat([torch.from_numpy(w0), plain, torch.from_numpy(w2)]).t() + bias
    out = layer(x)
    torch.testing.assert_close(out, exact, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(out[:, 16:26], exact[:, 16:26], rtol=1e-5, atol=1e-5)
    assert (layer.method.num_packed, layer.method.num_plain) == (2, 1)
    assert layer.method.nbytes > plain.nbytes


@pytest.mark.parametrize("name", METHODS)
def test_inputs_that_make_no_groups_stay_plain(name):
    """And are then multiplied exactly, fused as ever."""
    layer = MergedColumnParallelLinear(context(name), 40, [8, 4])
    weights = [torch.randn(8, 40), torch.randn(4, 40)]
    layer.load_shard("weight", 1, weights[1])  # files are in an order of their own
    layer.load_shard("weight", 0, weights[0])
    layer.process_after_load()
    x = torch.randn(2, 40)
    torch.testing.assert_close(layer(x), x @ torch.cat(weights).t())
    assert (layer.method.num_packed, layer.method.num_plain) == (0, 2)


def test_a_repacked_plain_part_is_not_kept_twice():
    class Repacked:
        nbytes = 48 * 40 * 4

        def __init__(self, weight, bias):
            self.weight = weight.clone()

        def __call__(self, x):
            return x @ self.weight.t()

    kernels = dataclasses.replace(reference_kernels(), prepare_linear=Repacked)
    layer = ReplicatedLinear(context("int8", kernels=kernels), 40, 48)
    load_all(layer, {"weight": [torch.randn(48, 40)]})
    assert layer.method.nbytes == Repacked.nbytes


@pytest.mark.parametrize("name", METHODS)
def test_a_tied_output_layer_shares_the_packed_embedding(name):
    torch.manual_seed(0)
    where = context(name)
    embedding = VocabParallelEmbedding(where.at("embed_tokens"), 50, 64)
    head = ParallelLMHead(where.at("lm_head"), 50, 64)
    head.tie(embedding)
    codes, weights = random_codes("Q8_0", 50, 64)
    weights = torch.from_numpy(weights)
    assert embedding.shard_shapes("weight") == head.shard_shapes("weight") == [(50, 64)]
    if name == "gguf":
        embedding.load_codes(0, codes)
    else:
        embedding.load_shard("weight", 0, weights)
    embedding.process_after_load()
    head.process_after_load()
    assert head.method is embedding.method
    ids = torch.tensor([0, 49, 7, 7])
    torch.testing.assert_close(embedding(ids), weights[ids], rtol=0, atol=0.02)
    x = torch.randn(3, 64)
    logits = head(x)
    assert logits.shape == (3, 64)
    exact = x @ weights.t()
    assert (logits[:, :50] - exact).norm() < 0.01 * exact.norm()


def test_int4_keeps_the_vocabulary_in_8_bits():
    weights = torch.randn(50, 64)
    errors = {}
    for name in ("int8", "int4"):
        embedding = VocabParallelEmbedding(context(name), 50, 64)
        embedding.load_shard("weight", 0, weights)
        embedding.process_after_load()
        errors[name] = (embedding(torch.arange(50)) - weights).abs().max()
    assert errors["int4"] == errors["int8"] < 0.03


def test_an_untied_head_of_codes():
    head = ParallelLMHead(context("gguf"), 50, 64)
    codes, weights = random_codes("Q4_0", 50, 64)
    head.load_codes(0, codes)
    head.process_after_load()
    x = torch.randn(3, 64)
    exact = x @ torch.from_numpy(weights).t()
    torch.testing.assert_close(head(x)[:, :50], exact, rtol=1e-4, atol=1e-3)


def test_an_embedding_that_cannot_be_packed_is_looked_up_and_multiplied():
    embedding = VocabParallelEmbedding(context("gguf"), 50, 64)
    head = ParallelLMHead(context("gguf"), 50, 64)
    head.tie(embedding)
    weights = torch.randn(50, 64)
    embedding.load_shard("weight", 0, weights)
    embedding.process_after_load()
    head.process_after_load()
    ids = torch.tensor([3, 1])
    assert torch.equal(embedding(ids), weights[ids])
    x = torch.randn(2, 64)
    torch.testing.assert_close(head(x)[:, :50], x @ weights.t())
    assert torch.equal(head(x)[:, 50:], torch.zeros(2, 14))


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_a_parameter_that_a_model_ties_elsewhere_is_packed_in_the_end(name):
    """The Transformers backend ties by sharing the parameter."""
    layer = ReplicatedLinear(context(name), 64, 20)
    shared = torch.nn.Parameter(torch.randn(20, 64), requires_grad=False)
    layer.weight = shared
    layer.process_after_load()
    x = torch.randn(2, 64)
    exact = x @ shared.t()
    assert 0 < (layer(x) - exact).norm() < 0.2 * exact.norm()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_packs_its_own_part(rank):
    """Rows of a column-parallel layer, inputs of a row-parallel one, rows of the vocabulary."""
    blocks = random_blocks("Q4_1", 64, 128)
    codes = group_codes("Q4_1", blocks)
    _, weights = random_codes("Q4_1", 64, 128)
    weights = torch.from_numpy(weights)
    where = context("gguf", rank=rank, size=2)
    columns, rows = slice(rank * 32, rank * 32 + 32), slice(rank * 64, rank * 64 + 64)
    layer = MergedColumnParallelLinear(where, 128, [64])
    layer.load_codes(0, codes)
    layer.process_after_load()
    x = torch.randn(2, 128)
    torch.testing.assert_close(layer(x), x @ weights[columns].t(), rtol=1e-4, atol=1e-3)
    layer = RowParallelLinear(where, 128, 64)
    layer.load_codes(0, codes)
    layer.process_after_load()
    torch.testing.assert_close(
        layer(x[:, rows]), x[:, rows] @ weights[:, rows].t(), rtol=1e-4, atol=1e-3
    )


def test_sixteen_bit_models():
    layer = ReplicatedLinear(context("int8", dtype=torch.bfloat16), 64, 20, bias=True)
    weight, bias = torch.randn(20, 64), torch.randn(20)
    load_all(layer, {"weight": [weight], "bias": [bias]})
    x = torch.randn(2, 64, dtype=torch.bfloat16)
    out = layer(x)
    assert out.dtype == torch.bfloat16
    exact = x.float() @ weight.t() + bias
    assert (out.float() - exact).norm() < 0.02 * exact.norm()


def test_kernels_without_packed_weights_say_so():
    kernels = dataclasses.replace(reference_kernels(), packed=None)
    with pytest.raises(ConfigError, match=r"model\.layer: this device's kernels.*leave out"):
        ReplicatedLinear(context("int8", kernels=kernels), 64, 20)
