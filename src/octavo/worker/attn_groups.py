"""AttentionGroups: the attention context of a step, one backend per KV group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.attention.interface import (
    AttentionBackend,
    AttentionContext,
    CommonAttentionMetadata,
    GroupStep,
    LayerCache,
)
from octavo.worker.block_tables import BlockTables
from octavo.worker.input_batch import InputBatch


class AttentionGroups:
    """Prepares each KV group's backend once per step; all layers of the group read the result."""

    def __init__(
        self,
        backends: Sequence[AttentionBackend[Any]],
        caches: dict[str, LayerCache],
        block_tables: BlockTables,
        *,
        shares_prefixes: bool,
    ) -> None:
        """Without `shares_prefixes` no step names a shared prefix, and backends may rely on it."""
        self._shares_prefixes = shares_prefixes
        self._backends = backends
        self._caches = caches
        self._tables = block_tables.tables

    def warm_up(self) -> None:
        """Prepare what steps must not wait for."""
        for backend in self._backends:
            backend.warm_up()

    def context(self, batch: InputBatch) -> AttentionContext:
        """What the attention layers read in this step."""
        plan = batch.plan
        groups: list[GroupStep[object]] = []
        for backend, table, mapping in zip(
            self._backends, self._tables, batch.slot_mappings, strict=True
        ):
            common = CommonAttentionMetadata(
                query_start_loc=batch.query_start_loc,
                seq_lens=batch.seq_lens,
                block_table=table,
                slots=batch.slots,
                query_start_loc_cpu=plan.query_start_loc,
                seq_lens_cpu=plan.seq_lens,
                num_rows=len(plan.seq_lens),
                num_decode_rows=plan.work.num_decode_rows,
                num_tokens=int(plan.query_start_loc[-1]),
                max_query_len=plan.max_query_len,
                max_seq_len=plan.max_seq_len,
                shared_prefixes=batch.shared_prefixes if self._shares_prefixes else None,
            )
            groups.append(GroupStep(backend, backend.build_metadata(common), mapping))
        return AttentionContext(self._caches, groups)
