import pytest
import torch

from octavo.layers.linear import (
    ColumnParallelLinear,
    MergedColumnParallelLinear,
    QKVParallelLinear,
    ReplicatedLinear,
    RowParallelLinear,
)
from octavo.types.errors import ConfigError
from support.layer_context import layer_context, load_all

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def poisoned(make, *args, **options):
    """A layer whose uninitialised weights are NaN."""
    layer = make(*args, **options)
    for parameter in layer.parameters():
        parameter.data.fill_(float("nan"))
    return layer


@pytest.mark.parametrize("bias", [False, True])
def test_replicated(bias):
    weight, b, x = torch.randn(7, 5), torch.randn(7), torch.randn(3, 5)
    layer = poisoned(ReplicatedLinear, layer_context(), 5, 7, bias)
    load_all(layer, {"weight": [weight]} | ({"bias": [b]} if bias else {}))
    expected = x @ weight.t() + (b if bias else 0)
    torch.testing.assert_close(layer(x), expected, **CLOSE)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_column_parallel(size):
    weight, bias, x = torch.randn(8, 5), torch.randn(8), torch.randn(3, 5)
    parts = [
        load_all(
            poisoned(ColumnParallelLinear, layer_context(rank, size), 5, 8, True),
            {"weight": [weight], "bias": [bias]},
        )(x)
        for rank in range(size)
    ]
    assert all(part.shape == (3, 8 // size) for part in parts)
    torch.testing.assert_close(torch.cat(parts, dim=1), x @ weight.t() + bias, **CLOSE)


@pytest.mark.parametrize("size", [1, 2])
def test_merged_column_parallel(size):
    gate, up, x = torch.randn(6, 5), torch.randn(4, 5), torch.randn(3, 5)
    results = [
        load_all(
            poisoned(MergedColumnParallelLinear, layer_context(rank, size), 5, [6, 4]),
            {"weight": [gate, up]},
        )(x)
        for rank in range(size)
    ]
    first = torch.cat([out[:, : 6 // size] for out in results], dim=1)
    second = torch.cat([out[:, 6 // size :] for out in results], dim=1)
    torch.testing.assert_close(first, x @ gate.t(), **CLOSE)
    torch.testing.assert_close(second, x @ up.t(), **CLOSE)


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "size"), [(6, 2, 1), (6, 2, 2), (8, 2, 4), (8, 1, 8)]
)
def test_qkv_divides_heads_and_repeats_kv_heads(num_heads, num_kv_heads, size):
    head_size, hidden = 4, 10
    q = torch.randn(num_heads * head_size, hidden)
    k, v = torch.randn(2, num_kv_heads * head_size, hidden)
    bq, bk, bv = (torch.randn(len(t)) for t in (q, k, v))
    x = torch.randn(3, hidden)
    for rank in range(size):
        context = layer_context(rank, size)
        layer = poisoned(
            QKVParallelLinear, context, hidden, head_size, num_heads, num_kv_heads, True
        )
        load_all(layer, {"weight": [q, k, v], "bias": [bq, bk, bv]})
        heads = layer(x).view(3, -1, head_size)
        assert layer.num_heads == num_heads // size
        assert layer.num_kv_heads == max(num_kv_heads // size, 1)
        assert heads.shape[1] == layer.num_heads + 2 * layer.num_kv_heads
        group = num_heads // num_kv_heads
        for local in range(layer.num_heads):
            head = rank * layer.num_heads + local
            kv_head = head // group
            at = layer.num_heads + local // (layer.num_heads // layer.num_kv_heads)
            for place, weight, bias, index in (
                (local, q, bq, head),
                (at, k, bk, kv_head),
                (at + layer.num_kv_heads, v, bv, kv_head),
            ):
                rows = slice(index * head_size, (index + 1) * head_size)
                expected = x @ weight[rows].t() + bias[rows]
                torch.testing.assert_close(heads[:, place], expected, **CLOSE)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_row_parallel_adds_the_bias_once(size):
    weight, bias, x = torch.randn(7, 6), torch.randn(7), torch.randn(3, 6)
    parts = [
        load_all(
            poisoned(RowParallelLinear, layer_context(rank, size), 6, 7, True),
            {"weight": [weight], "bias": [bias]},
        )(x.chunk(size, dim=1)[rank])
        for rank in range(size)
    ]
    torch.testing.assert_close(sum(parts), x @ weight.t() + bias, **CLOSE)


def test_row_parallel_sums_over_the_group():
    class Doubling:
        rank, size = 0, 1

        def all_reduce(self, x):
            return 2 * x

    weight, x = torch.randn(7, 6), torch.randn(3, 6)
    layer = RowParallelLinear(layer_context(group=Doubling()), 6, 7)
    load_all(layer, {"weight": [weight]})
    torch.testing.assert_close(layer(x), 2 * x @ weight.t(), **CLOSE)


def test_sizes_that_do_not_divide_name_the_layer():
    context = layer_context(0, 4, prefix="model.layers.3.mlp.up_proj")
    with pytest.raises(ConfigError, match=r"outputs of model.layers.3.mlp.up_proj: 6 .* 4 ranks"):
        ColumnParallelLinear(context, 8, 6)
    with pytest.raises(ConfigError, match="inputs of"):
        RowParallelLinear(context, 6, 8)
    with pytest.raises(ConfigError, match="query heads of"):
        QKVParallelLinear(context, 8, 4, 6, 2)
    with pytest.raises(ConfigError, match="ranks per KV head"):
        QKVParallelLinear(context, 8, 4, 12, 3)


def test_loading_converts_the_dtype():
    layer = ReplicatedLinear(layer_context(dtype=torch.bfloat16), 5, 7)
    weight = torch.randn(7, 5)
    layer.load_shard("weight", 0, weight)
    assert torch.equal(layer.weight, weight.bfloat16())
