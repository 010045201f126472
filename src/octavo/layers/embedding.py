"""Token embedding and output projection, divided by vocabulary among the ranks."""

from __future__ import annotations

import torch
from torch import nn

from octavo.checkpoints.group_codes import GroupCodes
from octavo.layers.context import LayerContext
from octavo.layers.linear import Linear
from octavo.layers.quantization.interface import LinearShape, PackingMethod
from octavo.layers.sharding import Part
from octavo.utils.misc import round_up

VOCAB_MULTIPLE = 64  # rows of a rank: whole tiles for the product with the output projection


def vocab_part(vocab_size: int, rank: int, num_ranks: int) -> tuple[Part, int]:
    """(real rows of a rank, its rows with padding); ids stay in order, the last are padding."""
    padded = round_up(vocab_size, VOCAB_MULTIPLE * num_ranks) // num_ranks
    start = min(rank * padded, vocab_size)
    return Part(vocab_size, start, min(padded, vocab_size - start)), padded


class VocabParallelEmbedding(nn.Module):
    """Token ids -> vectors; a rank looks up its own part of the vocabulary."""

    def __init__(self, context: LayerContext, vocab_size: int, hidden_size: int) -> None:
        super().__init__()
        self._group = context.group
        self._embedding = context.kernels.embedding
        self._lookup = self._vectors if context.group.size == 1 else self._lookup_part
        self._rows, padded = vocab_part(vocab_size, self._group.rank, self._group.size)
        method = context.quantization.vocabulary_method(context.kernels, context.prefix)
        self.method = method if isinstance(method, PackingMethod) else None
        if self.method is not None:
            shape = LinearShape(hidden_size, padded, False, context.dtype, context.device)
            self.method.create_weights(self, shape)
        else:
            self.weight = context.parameter(padded, hidden_size)
            self.weight.data[self._rows.size :].zero_()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids[T] -> [T, H]."""
        return self._lookup(ids)

    def shard_shapes(self, param: str) -> list[tuple[int, ...]]:
        """The whole vocabulary."""
        return [(self._rows.full, self.weight.shape[1])]

    def load_shard(self, param: str, index: int, tensor: torch.Tensor) -> None:
        """Copy this rank's rows."""
        rows = self._rows
        tensor = tensor[rows.start : rows.start + rows.size]
        if self.method is not None:
            self.method.load_rows(0, tensor)
        else:
            self.weight.data[: rows.size].copy_(tensor)

    def load_codes(self, index: int, codes: GroupCodes) -> None:
        """Take this rank's rows; for a PackingMethod that takes codes."""
        assert self.method is not None
        self.method.load_rows(0, _rows_of(codes, self._rows))

    def process_after_load(self) -> None:
        """Give up the parameter of a packed weight; called once."""
        if self.method is not None:
            self.register_parameter("weight", None)

    def _vectors(self, ids: torch.Tensor) -> torch.Tensor:
        if self.method is not None:
            return self.method.lookup(ids)
        return self._embedding(ids, self.weight)

    def _lookup_part(self, ids: torch.Tensor) -> torch.Tensor:
        local = ids - self._rows.start
        elsewhere = (local < 0) | (local >= self._rows.size)
        vectors = self._vectors(local.masked_fill(elsewhere, 0))
        return self._group.all_reduce(vectors.masked_fill(elsewhere[:, None], 0))


class LearnedPositions(nn.Module):
    """Positions -> vectors, whole on every rank; position 0 has row `offset`."""

    def __init__(
        self, context: LayerContext, num_positions: int, hidden_size: int, offset: int = 0
    ) -> None:
        super().__init__()
        self._embedding = context.kernels.embedding
        self._offset = offset
        self.weight = context.parameter(num_positions + offset, hidden_size)

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        """positions[T] int64 -> [T, H]."""
        return self._embedding(positions + self._offset, self.weight)


class ParallelLMHead(Linear):
    """Hidden states -> logits of this rank's part of the vocabulary, padding included."""

    def __init__(
        self, context: LayerContext, vocab_size: int, hidden_size: int, bias: bool = False
    ) -> None:
        group = context.group
        rows, padded = vocab_part(vocab_size, group.rank, group.size)
        super().__init__(
            context,
            [Part.whole(padded)],
            Part.whole(hidden_size),
            bias,
            context.quantization.vocabulary_method(context.kernels, context.prefix),
        )
        self._rows = rows

    def tie(self, embedding: VocabParallelEmbedding) -> None:
        """Use the embedding's weight; the checkpoint then needs none for this layer."""
        self.weight = embedding.weight
        if embedding.method is not None:
            self.method = embedding.method

    def shard_shapes(self, param: str) -> list[tuple[int, ...]]:
        """The whole vocabulary, without padding."""
        return [(self._rows.full, *self.get_parameter(param).shape[1:])]

    def load_shard(self, param: str, index: int, tensor: torch.Tensor) -> None:
        """Copy this rank's rows; padding rows are zero, or of a packed weight undefined."""
        rows = self._rows
        if param == "weight" and isinstance(self.method, PackingMethod):
            self.method.load_rows(0, tensor[rows.start : rows.start + rows.size])
            return
        target = self.get_parameter(param).data
        target[: rows.size].copy_(tensor[rows.start : rows.start + rows.size])
        target[rows.size :].zero_()

    def load_codes(self, index: int, codes: GroupCodes) -> None:
        """See Linear.load_codes."""
        assert isinstance(self.method, PackingMethod)
        self.method.load_rows(0, _rows_of(codes, self._rows))


def _rows_of(codes: GroupCodes, rows: Part) -> GroupCodes:
    return codes.part(slice(rows.start, rows.start + rows.size), slice(0, codes.shape[1]))
