"""BlockTables: which blocks hold a slot's tokens, per KV group."""

from __future__ import annotations

from octavo.types.kv_spec import KVCacheConfig
from octavo.types.scheduler_output import NewBlocks, NewRequestData
from octavo.utils.misc import cdiv
from octavo.worker.device_state import DeviceState


class BlockTables:
    """One table [num_slots + 1, max_blocks] per group; entry 0 is the null block.

    The last row belongs to the padding slot; its entries are negative, so that the keys and
    values of padding tokens are written nowhere.
    """

    def __init__(
        self, kv_config: KVCacheConfig, num_slots: int, max_model_len: int, state: DeviceState
    ) -> None:
        self.block_sizes = [group.spec.block_size for group in kv_config.groups]
        self.max_blocks = [cdiv(max_model_len, size) for size in self.block_sizes]
        self.tables = [state.view(f"block_table.{g}") for g in range(len(self.block_sizes))]
        self._state = state
        for table in self.tables:
            table[num_slots].fill_(-1)

    @staticmethod
    def regions(
        kv_config: KVCacheConfig, num_slots: int, max_model_len: int
    ) -> dict[str, tuple[int, ...]]:
        """The regions of DeviceState that the tables live in."""
        return {
            f"block_table.{g}": (num_slots + 1, cdiv(max_model_len, group.spec.block_size))
            for g, group in enumerate(kv_config.groups)
        }

    def add(self, new: NewRequestData) -> None:
        """Write the table of a request that takes its slot."""
        for group, ids in enumerate(new.block_ids):
            self._stage(group, new.slot, 0, ids)

    def append(self, blocks: NewBlocks) -> None:
        """Extend the table of a live slot."""
        self._stage(blocks.group, blocks.slot, blocks.start, blocks.block_ids)

    def _stage(self, group: int, slot: int, start: int, ids: list[int]) -> None:
        self._state.stage(f"block_table.{group}", slot * self.max_blocks[group] + start, ids)
