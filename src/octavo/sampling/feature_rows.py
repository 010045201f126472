"""FeatureRows: which rows of the features' tables belong to a slot, known to the device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from octavo.kernels.slot_tables import NUM_FEATURES, Feature
from octavo.sampling.staging import Staging


class FeatureRows:
    """`table` [num_slots, NUM_FEATURES] int32: the row of each feature that a slot uses, else -1.

    What `users` of a feature say on the host when the changes of a step are flushed.
    """

    def __init__(
        self, num_slots: int, users: Mapping[Feature, Mapping[int, int]], staging: Staging
    ) -> None:
        shape = (num_slots, NUM_FEATURES)
        self.table = torch.full(shape, -1, dtype=torch.int32, device=staging.device)
        self._users = users
        self._staging = staging
        self._changed: set[int] = set()
        # Slots whose row on the device is not all -1: the others need no write.
        self._written: set[int] = set()

    def note(self, slot: int) -> None:
        """A feature has gained or lost the slot."""
        self._changed.add(slot)

    def flush(self) -> None:
        """Stage the rows of the slots noted since the last flush."""
        rows = {}
        for slot in self._changed:
            row = [self._users[feature].get(slot, -1) for feature in Feature]
            used = any(value >= 0 for value in row)
            if used or slot in self._written:
                rows[slot] = row
                (self._written.add if used else self._written.discard)(slot)
        self._changed.clear()
        if rows:
            values = np.array([[slot, *row] for slot, row in rows.items()], np.int32)
            self._staging.put(values, self._write)

    def _write(self, part: Tensor) -> None:
        rows = part.view(-1, 1 + NUM_FEATURES)
        self.table.index_copy_(0, rows[:, 0].to(torch.int64), rows[:, 1:])
