import pytest
import torch
from torch import nn

from octavo.layers.linear import QKVParallelLinear, RowParallelLinear
from octavo.model_loader.placement import placements_of
from octavo.models.common.weights import WeightTarget
from support.layer_context import layer_context


def filled(placements, source):
    """Do by hand what a reader does with a tensor's flat elements."""
    flat = source.flatten()
    for placement in placements:
        for piece in placement.pieces(max_elements=50):
            data = flat[piece.source_offset : piece.source_offset + piece.span]
            piece.target.copy_(piece.view(data))


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_fused_columns(rank, index):
    made = [QKVParallelLinear(layer_context(rank, 2), 12, 4, 6, 2) for _ in range(2)]
    shape = made[0].shard_shapes("weight")[index]
    source = torch.randn(shape)
    for layer in made:
        nn.init.zeros_(layer.weight)
    made[0].load_shard("weight", index, source)
    filled(placements_of(WeightTarget(made[1], "weight", index, shape)), source)
    assert torch.equal(made[0].weight, made[1].weight)
    assert made[0].weight.abs().sum() > 0


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_divided_inputs_are_read_with_strides(rank):
    layer = RowParallelLinear(layer_context(rank, 3), 33, 7)
    source = torch.randn(7, 33)
    (placement,) = placements_of(WeightTarget(layer, "weight", 0, (7, 33)))
    assert placement.span == 6 * 33 + 11
    filled([placement], source)
    assert torch.equal(layer.weight, source[:, rank * 11 : rank * 11 + 11])


class Module(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(6, 4), requires_grad=False)
        self.how = how

    def shard_shapes(self, param):
        return [(6, 4)]

    def load_shard(self, param, index, tensor):
        self.how(self.weight.data, tensor)


def assign(target, tensor):
    target[:3] = tensor[:3]


@pytest.mark.parametrize(
    "how",
    [
        lambda target, tensor: target.copy_(tensor + 1),
        lambda target, tensor: target.copy_(tensor).add_(1),
        lambda target, tensor: target.copy_(tensor[:1]),
        lambda target, tensor: target.copy_(tensor.to(torch.float64)),
        assign,
    ],
    ids=["computed", "changed after", "broadcast", "converted", "assigned"],
)
def test_more_than_a_copy_is_left_alone(how):
    module = Module(how)
    assert placements_of(WeightTarget(module, "weight", 0, (6, 4))) is None
    assert (module.weight == 0).all()


def test_padding_is_cleared_and_transposed_tensors_are_whole():
    def padded(target, tensor):
        target[:, :2].copy_(tensor.t()[:, :2])
        target[:, 2:].zero_()

    module = Module(padded)
    module.weight.fill_(9)
    module.shard_shapes = None
    (placement,) = placements_of(WeightTarget(module, "weight", 0, (4, 6)))
    assert len(list(placement.pieces(max_elements=3))) == 1
    source = torch.randn(4, 6)
    filled([placement], source)
    assert torch.equal(module.weight[:, :2], source.t()[:, :2])
    assert (module.weight[:, 2:] == 0).all()
