import pytest
import torch
from torch import nn

from octavo.layers.embedding import ParallelLMHead, VocabParallelEmbedding
from octavo.layers.linear import MergedColumnParallelLinear, QKVParallelLinear
from octavo.layers.norm import RMSNorm
from octavo.models.common.weights import CheckpointLayout, weight_map
from octavo.types.errors import CheckpointError
from support.layer_context import layer_context

PACKED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


class Toy(nn.Module):
    """One fused layer of each kind, as checkpoints name their parts."""

    def __init__(self, rank=0, size=1, tied=False):
        super().__init__()
        context = layer_context(rank, size)
        self.embed = VocabParallelEmbedding(context, 10, 8)
        self.block = nn.Module()
        self.block.qkv_proj = QKVParallelLinear(context, 8, 4, 4, 2, bias=True)
        self.block.gate_up_proj = MergedColumnParallelLinear(context, 8, [6, 6])
        self.norm = RMSNorm(context, 8, 1e-5)
        self.lm_head = ParallelLMHead(context, 10, 8)
        if tied:
            self.lm_head.tie(self.embed)


def tensors_of(weights):
    return {name: torch.randn(target.shape) for name, target in weights.targets.items()}


def test_names_and_shapes():
    weights = weight_map(Toy(), PACKED)
    shapes = {name: target.shape for name, target in weights.targets.items()}
    assert shapes == {
        "embed.weight": (10, 8),
        "block.q_proj.weight": (16, 8),
        "block.q_proj.bias": (16,),
        "block.k_proj.weight": (8, 8),
        "block.k_proj.bias": (8,),
        "block.v_proj.weight": (8, 8),
        "block.v_proj.bias": (8,),
        "block.gate_proj.weight": (6, 8),
        "block.up_proj.weight": (6, 8),
        "norm.weight": (8,),
        "lm_head.weight": (10, 8),
    }
    assert not weights.tied


def test_shapes_are_those_of_the_checkpoint_on_every_rank():
    whole = weight_map(Toy(), PACKED)
    part = weight_map(Toy(1, 2), PACKED)
    assert {n: t.shape for n, t in part.targets.items()} == {
        n: t.shape for n, t in whole.targets.items()
    }


def test_parts_land_in_order_and_from_any_order():
    toy = Toy()
    for parameter in toy.parameters():
        parameter.data.fill_(float("nan"))
    weights = weight_map(toy, PACKED)
    tensors = tensors_of(weights)
    used = weights.load(reversed(tensors.items()))
    assert used == set(tensors)
    fused = torch.cat([tensors[f"block.{p}_proj.weight"] for p in "qkv"])
    assert torch.equal(toy.block.qkv_proj.weight, fused)
    fused = torch.cat([tensors[f"block.{p}_proj.bias"] for p in "qkv"])
    assert torch.equal(toy.block.qkv_proj.bias, fused)
    fused = torch.cat([tensors["block.gate_proj.weight"], tensors["block.up_proj.weight"]])
    assert torch.equal(toy.block.gate_up_proj.weight, fused)
    assert torch.equal(toy.norm.weight, tensors["norm.weight"])
    assert torch.equal(toy.embed.weight[:10], tensors["embed.weight"])


def test_tied_head_is_not_expected_and_may_be_there():
    toy = Toy(tied=True)
    weights = weight_map(toy, PACKED)
    assert "lm_head.weight" not in weights.targets
    assert weights.ignores("lm_head.weight")
    tensors = tensors_of(weights)
    tensors["lm_head.weight"] = torch.full((10, 8), 9.0)
    assert weights.load(tensors.items()) == set(weights.targets)
    assert torch.equal(toy.lm_head.weight[:10], tensors["embed.weight"])


def test_derived_buffers_are_ignored():
    weights = weight_map(Toy(), PACKED)
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    assert weights.ignores(name)
    assert weights.load([(name, torch.zeros(3))]) == set()


def test_unknown_and_misshapen_tensors():
    weights = weight_map(Toy(), PACKED)
    with pytest.raises(CheckpointError, match=r"no place for the tensor block\.x"):
        weights.load([("block.x", torch.zeros(1))])
    with pytest.raises(CheckpointError, match=r"norm.weight has shape \[9\].* says \[8\]"):
        weights.load([("norm.weight", torch.zeros(9))])


def test_other_names():
    layout = CheckpointLayout(names=(("block", "h.0"), ("norm", "ln_f"), ("lm_head", "out")))
    names = set(weight_map(Toy(), PACKED, layout).targets)
    assert {"h.0.q_proj.weight", "ln_f.weight", "out.weight", "embed.weight"} <= names
    assert CheckpointLayout(names=(("a.b", "c"), ("c", ""))).name("x.a.b.y.ab") == "x.y.ab"


@pytest.mark.parametrize(("rank", "size"), [(0, 1), (1, 2)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("by_head", [False, True])
def test_whole_tensors(rank, size, transposed, by_head):
    """One tensor for q, k and v leads to the same parameters as three."""
    toy, other = Toy(rank, size), Toy(rank, size)
    parts = weight_map(toy, PACKED)
    tensors = tensors_of(parts)
    parts.load(tensors.items())
    layout = CheckpointLayout(
        whole={"qkv_proj": "wqkv"},
        by_head=by_head,
        transposed=("qkv_proj",) if transposed else (),
    )
    for param in ("weight", "bias"):
        q, k, v = (tensors.pop(f"block.{part}_proj.{param}") for part in "qkv")
        if by_head:  # two KV heads of size 4, each with two queries
            heads = [t.unflatten(0, (2, -1, 4)) for t in (q, k, v)]
            whole = torch.cat(heads, dim=1).flatten(0, 2)
        else:
            whole = torch.cat([q, k, v])
        tensors[f"block.wqkv.{param}"] = whole.T if transposed and whole.ndim > 1 else whole
    weights = weight_map(other, PACKED, layout)
    assert {name: t.shape for name, t in weights.targets.items()} == {
        name: tuple(t.shape) for name, t in tensors.items()
    }
    assert weights.load(tensors.items()) == set(tensors)
    for ours, expected in zip(other.parameters(), toy.parameters(), strict=True):
        assert torch.equal(ours, expected)


def test_a_prefix_may_be_left_out_and_buffers_are_ignored():
    layout = CheckpointLayout(
        names=(("embed", "transformer.embed"),), prefix="transformer.", buffers=(".mask",)
    )
    weights = weight_map(Toy(), PACKED, layout)
    assert weights.canonical("embed.weight") == "transformer.embed.weight"
    assert weights.canonical("norm.weight") == "norm.weight"
    assert weights.ignores("block.mask")
    assert not weights.ignores("block.masks")
    assert weights.load([("embed.weight", torch.ones(10, 8))]) == {"transformer.embed.weight"}
