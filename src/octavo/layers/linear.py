"""Linear layers, whole or divided among the ranks of a tensor-parallel group."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from octavo.checkpoints.group_codes import GroupCodes
from octavo.layers.context import LayerContext
from octavo.layers.quantization.interface import LinearMethod, LinearShape, PackingMethod
from octavo.layers.sharding import Part


class Linear(nn.Module):
    """This rank's part of y = x W^T + b, whose rows may come from several checkpoint tensors.

    `outputs` says, per checkpoint tensor in the order of the result, which outputs are held here;
    `inputs` which inputs. Everything else (storage, product) is the quantization method's.
    """

    def __init__(
        self,
        context: LayerContext,
        outputs: Sequence[Part],
        inputs: Part,
        bias: bool,
        method: LinearMethod | None = None,
    ) -> None:
        super().__init__()
        self.outputs = tuple(outputs)
        self.inputs = inputs
        self.out_features = sum(part.size for part in self.outputs)
        if method is None:
            method = context.quantization.linear_method(context.kernels, context.prefix)
        self.method = method
        self.dims = self.method.create_weights(
            self, LinearShape(inputs.size, self.out_features, bias, context.dtype, context.device)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, inputs of this rank] -> [T, outputs of this rank]."""
        return self.method.apply(x)

    def shard_shapes(self, param: str) -> list[tuple[int, ...]]:
        """Checkpoint shape of each fused tensor."""
        dims = self.dims[param]
        shape = list(self.get_parameter(param).shape)
        if dims.input is not None:
            shape[dims.input] = self.inputs.full
        shapes = []
        for part in self.outputs:
            if dims.output is not None:
                shape[dims.output] = part.full
            shapes.append(tuple(shape))
        return shapes

    def load_shard(self, param: str, index: int, tensor: torch.Tensor) -> None:
        """Copy this rank's slice of fused tensor `index`."""
        dims = self.dims[param]
        part = self.outputs[index]
        offset = sum(earlier.size for earlier in self.outputs[:index])
        if param == "weight" and isinstance(self.method, PackingMethod):
            rows = tensor.narrow(0, part.start, part.size)
            self.method.load_rows(offset, rows.narrow(1, self.inputs.start, self.inputs.size))
            return
        target = self.get_parameter(param).data
        if dims.output is not None:
            target = target.narrow(dims.output, offset, part.size)
            tensor = tensor.narrow(dims.output, part.start, part.size)
        if dims.input is not None:
            tensor = tensor.narrow(dims.input, self.inputs.start, self.inputs.size)
        target.copy_(tensor)

    def load_codes(self, index: int, codes: GroupCodes) -> None:
        """Take this rank's slice of fused weight `index`; for a PackingMethod that takes codes."""
        assert isinstance(self.method, PackingMethod)
        part, inputs = self.outputs[index], self.inputs
        rows = slice(part.start, part.start + part.size)
        columns = slice(inputs.start, inputs.start + inputs.size)
        offset = sum(earlier.size for earlier in self.outputs[:index])
        self.method.load_rows(offset, codes.part(rows, columns))

    def process_after_load(self) -> None:
        """Prepare the loaded weight for forward; called once."""
        self.method.process_after_load(self)


class ReplicatedLinear(Linear):
    """Every rank holds the whole weight."""

    def __init__(
        self, context: LayerContext, in_features: int, out_features: int, bias: bool = False
    ) -> None:
        super().__init__(context, [Part.whole(out_features)], Part.whole(in_features), bias)


class MergedColumnParallelLinear(Linear):
    """Several products of one input as one, the outputs of each divided among the ranks."""

    def __init__(
        self,
        context: LayerContext,
        in_features: int,
        out_features: Sequence[int],
        bias: bool = False,
    ) -> None:
        group = context.group
        outputs = [
            Part.even(size, group.rank, group.size, f"outputs of {context.prefix}")
            for size in out_features
        ]
        super().__init__(context, outputs, Part.whole(in_features), bias)


class ColumnParallelLinear(MergedColumnParallelLinear):
    """The outputs are divided among the ranks; the result stays divided."""

    def __init__(
        self, context: LayerContext, in_features: int, out_features: int, bias: bool = False
    ) -> None:
        super().__init__(context, in_features, [out_features], bias)


class QKVParallelLinear(Linear):
    """Queries, keys and values in one product, divided by heads.

    With more ranks than KV heads, each KV head is held by several ranks. The result is
    [T, (num_heads + 2 * num_kv_heads) * head_size], head counts of this rank.
    """

    def __init__(
        self,
        context: LayerContext,
        hidden_size: int,
        head_size: int,
        num_heads: int,
        num_kv_heads: int,
        bias: bool = False,
    ) -> None:
        rank, size = context.group.rank, context.group.size
        heads = Part.even(num_heads, rank, size, f"query heads of {context.prefix}")
        if num_kv_heads < size:
            holders = Part.even(size, 0, num_kv_heads, f"ranks per KV head of {context.prefix}")
            kv_heads = Part(num_kv_heads, rank // holders.size, 1)
        else:
            kv_heads = Part.even(num_kv_heads, rank, size, f"KV heads of {context.prefix}")
        self.num_heads = heads.size
        self.num_kv_heads = kv_heads.size
        self.head_size = head_size
        outputs = [
            Part(part.full * head_size, part.start * head_size, part.size * head_size)
            for part in (heads, kv_heads, kv_heads)
        ]
        super().__init__(context, outputs, Part.whole(hidden_size), bias)


class RowParallelLinear(Linear):
    """The inputs are divided among the ranks, as a column-parallel layer leaves them.

    The ranks' results are summed; the bias is added on rank 0 only.
    """

    def __init__(
        self, context: LayerContext, in_features: int, out_features: int, bias: bool = False
    ) -> None:
        group = context.group
        inputs = Part.even(in_features, group.rank, group.size, f"inputs of {context.prefix}")
        super().__init__(context, [Part.whole(out_features)], inputs, bias)
        self._group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, inputs of this rank] -> [T, out_features], summed over the ranks."""
        return self._group.all_reduce(self.method.apply(x))

    def process_after_load(self) -> None:
        """Keep the bias on rank 0 alone, then prepare the weight."""
        if self._group.rank > 0:
            self.register_parameter("bias", None)
        super().process_after_load()
