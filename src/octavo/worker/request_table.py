"""RequestTable: a fixed slot per live request, on the device and (its tokens) on the host."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.types.scheduler_output import NewRequestData
from octavo.worker.device_state import DeviceState


class HostRequest:
    """What the host keeps of a slot's request: the tokens that prefill rows are cut from."""

    __slots__ = ("new", "token_ids")

    def __init__(self, new: NewRequestData) -> None:
        self.new = new
        self.token_ids: npt.NDArray[np.int32] = np.asarray(new.token_ids, dtype=np.int32)


class RequestTable:
    """Lengths and last sampled tokens of `num_slots` slots plus one that padding rows use.

    On the device a step advances them itself, so a decode step whose rows are those of the step
    before needs nothing from the host.
    """

    def __init__(self, num_slots: int, state: DeviceState) -> None:
        self.num_slots = num_slots
        self.num_computed = state.view("num_computed")  # [num_slots + 1] int32
        self.last_token = state.view("last_token")  # [num_slots + 1] int32
        self._state = state
        self._requests: dict[int, HostRequest] = {}

    @staticmethod
    def regions(num_slots: int) -> dict[str, tuple[int, ...]]:
        """The regions of DeviceState that the table lives in."""
        return {"num_computed": (num_slots + 1,), "last_token": (num_slots + 1,)}

    def add(self, new: NewRequestData) -> None:
        """Take a slot for a new or resumed request."""
        self._requests[new.slot] = HostRequest(new)
        self._state.stage("num_computed", new.slot, [new.num_computed_tokens])

    def remove(self, slot: int) -> None:
        """Forget the request of a slot."""
        self._requests.pop(slot, None)

    def request(self, slot: int) -> HostRequest:
        """The host's side of a live slot."""
        return self._requests[slot]
