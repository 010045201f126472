from __future__ import annotations

import pytest

from octavo.core.slots import SlotPool


def test_slots_are_taken_from_the_lowest():
    slots = SlotPool(3)
    assert [slots.take() for _ in range(3)] == [0, 1, 2]
    assert slots.num_free == 0
    with pytest.raises(IndexError):
        slots.take()


def test_a_freed_slot_is_reported_once():
    slots = SlotPool(2)
    slots.take()
    slots.free(0)
    assert slots.num_free == 2
    assert slots.take_freed() == [0]
    assert slots.take_freed() == []
    assert slots.take() == 0
