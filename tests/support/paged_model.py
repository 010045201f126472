"""PagedModel: run a model directly over a paged cache with scrambled blocks, without a runner."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch

from octavo.attention.interface import (
    AttentionContext,
    AttentionSetup,
    CommonAttentionMetadata,
    GroupStep,
    LayerCache,
)
from octavo.attention.registry import select_backend
from octavo.layers.attention import Attention


@dataclass
class Sequence:
    """A live sequence: its row of the block tables and how many tokens are computed."""

    slot: int
    computed: int = 0
    num_blocks: int = 0
    tokens: list[int] = field(default_factory=list)


class PagedModel:
    """Allocates the cache, hands out blocks in random order, builds a step's attention context.

    Layers of one window form a KV group with block tables of its own. Unused blocks are NaN.
    """

    def __init__(self, model, *, block_size=16, num_blocks=256, num_slots=64, max_len=2048, seed=0):
        self.model = model
        self.block_size = block_size
        layers = [m for m in model.modules() if isinstance(m, Attention)]
        windows = sorted({m.params.sliding_window or 0 for m in layers})
        shape = next(m.params for m in layers)
        dtype = torch.float32
        cache = torch.full(
            (num_blocks, len(layers), 2, shape.num_kv_heads, block_size, shape.head_size),
            float("nan"),
            dtype=dtype,
        )
        cache[0] = 0.0
        self._random = torch.Generator().manual_seed(seed)
        self._free = [
            (torch.randperm(num_blocks - 1, generator=self._random) + 1).tolist() for _ in windows
        ]
        width = -(-max_len // block_size)
        self._tables = [torch.zeros(num_slots, width, dtype=torch.int32) for _ in windows]
        self._caches = {}
        self._backends = []
        for group, window in enumerate(windows):
            members = [m for m in layers if (m.params.sliding_window or 0) == window]
            setup = AttentionSetup(
                params=members[0].params,
                block_size=block_size,
                dtype=dtype,
                kv_dtype=dtype,
                device=torch.device("cpu"),
                max_num_rows=num_slots,
                max_num_tokens=4096,
                max_model_len=max_len,
            )
            self._backends.append(select_backend(setup)(setup))
            for member in members:
                index = layers.index(member)
                self._caches[member.name] = LayerCache(cache[:, index], group)
        self._slots = list(range(num_slots))

    def sequence(self) -> Sequence:
        return Sequence(self._slots.pop())

    @torch.inference_mode()
    def step(self, rows: list[tuple[Sequence, list[int]]], read=None) -> list[torch.Tensor]:
        """Append each row's tokens to its sequence; logits [tokens of the row, V] per row.

        With `read`, indices of tokens, those of other tokens are not defined.
        """
        context, positions = self._context(rows)
        if read is not None:
            context = replace(context, read=torch.tensor(read, dtype=torch.int64))
        ids = torch.tensor([token for _, tokens in rows for token in tokens])
        hidden = self.model.forward(ids, positions, context)
        logits = self.model.compute_logits(hidden)
        for sequence, tokens in rows:
            sequence.computed += len(tokens)
            sequence.tokens += tokens
        return list(logits.split([len(tokens) for _, tokens in rows]))

    def greedy(self, prompts: list[list[int]], num_tokens: int, chunk: int = 1 << 30):
        """The next `num_tokens` of each prompt, run together; prompts in pieces of `chunk`."""
        sequences = [self.sequence() for _ in prompts]
        outputs: list[list[int]] = [[] for _ in prompts]
        while any(len(out) < num_tokens for out in outputs):
            rows = []
            for sequence, prompt, out in zip(sequences, prompts, outputs, strict=True):
                known = prompt + out
                if len(out) < num_tokens:
                    rows.append((sequence, known[sequence.computed :][:chunk]))
            results = self.step(rows)
            for (sequence, _), logits in zip(rows, results, strict=True):
                index = sequences.index(sequence)
                if sequence.computed == len(prompts[index]) + len(outputs[index]):
                    outputs[index].append(int(logits[-1].argmax()))
        return outputs

    def _context(self, rows):
        starts = np.cumsum([0, *(len(tokens) for _, tokens in rows)]).astype(np.int32)
        lengths = np.asarray([s.computed + len(t) for s, t in rows], dtype=np.int32)
        positions = torch.cat([torch.arange(s.computed, s.computed + len(t)) for s, t in rows])
        slots = torch.tensor([s.slot for s, _ in rows])
        token_slots = slots.repeat_interleave(torch.tensor([len(t) for _, t in rows]))
        for sequence, tokens in rows:
            needed = -(-(sequence.computed + len(tokens)) // self.block_size)
            for table, free in zip(self._tables, self._free, strict=True):
                for index in range(sequence.num_blocks, needed):
                    table[sequence.slot, index] = free.pop()
            sequence.num_blocks = max(sequence.num_blocks, needed)
        groups = []
        for table, backend in zip(self._tables, self._backends, strict=True):
            batch = CommonAttentionMetadata(
                query_start_loc=torch.from_numpy(starts),
                seq_lens=torch.from_numpy(lengths),
                block_table=table,
                slots=slots,
                query_start_loc_cpu=starts,
                seq_lens_cpu=lengths,
                num_rows=len(rows),
                num_decode_rows=0,
                num_tokens=int(starts[-1]),
                max_query_len=max(len(t) for _, t in rows),
                max_seq_len=int(lengths.max()),
            )
            block = table[token_slots, positions // self.block_size].long()
            mapping = block * self.block_size + positions % self.block_size
            groups.append(GroupStep(backend, backend.build_metadata(batch), mapping))
        return AttentionContext(self._caches, groups), positions
