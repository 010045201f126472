"""SlotPool: the rows of the device's request table that are free."""

from __future__ import annotations


class SlotPool:
    """Slots 0..num_slots-1; a freed one is reported to the workers once, then reused."""

    def __init__(self, num_slots: int) -> None:
        self._free = list(range(num_slots - 1, -1, -1))  # a stack: the lowest slot on top
        self._unreported: list[int] = []

    @property
    def num_free(self) -> int:
        """Slots that can be taken."""
        return len(self._free)

    def take(self) -> int:
        """A free slot; raises IndexError when there is none."""
        return self._free.pop()

    def free(self, slot: int) -> None:
        """Give a slot back; no step in flight may have it."""
        self._free.append(slot)
        self._unreported.append(slot)

    def take_freed(self) -> list[int]:
        """Slots freed since the last call, for the step that goes to the workers now."""
        freed, self._unreported = self._unreported, []
        return freed
