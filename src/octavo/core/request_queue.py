"""RequestQueue: the order in which waiting requests are served and running ones preempted."""

from __future__ import annotations

import enum
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

from octavo.core.request import Request

# Policy -> a key that differs between any two requests; the smallest is served first.
POLICIES: dict[str, Callable[[Request], Any]] = {
    "fcfs": attrgetter("arrival_index"),
    "priority": attrgetter("priority_key"),
}
# How far `serve` looks past requests that can't start now.
LOOK_AHEAD = 64
# How many requests may be admitted ahead of one that did not fit; then the queue waits for it.
MAX_BYPASSES = 16


class Verdict(enum.Enum):
    """The answer to a waiting request."""

    ADMITTED = enum.auto()
    REFUSED = enum.auto()  # no room for it: others may pass, MAX_BYPASSES times
    LATER = enum.auto()  # it is better off after something that is under way: others may pass
    FULL = enum.auto()  # nobody can be admitted any more in this step


class RequestQueue:
    """Waiting requests, new and preempted ones alike, in the order of service.

    So with "fcfs" a preempted request is in front of everything that came after it.
    """

    def __init__(self, policy: str) -> None:
        """`policy` is a key of POLICIES."""
        self._key = POLICIES[policy]
        # A sorted list: walking it in order and leaving from the middle are as common as joining.
        self._requests: list[Request] = []

    def add(self, request: Request) -> None:
        """A request joins at its place."""
        insort(self._requests, request, key=self._key)

    def remove(self, request: Request) -> None:
        """A request that is in the queue leaves it."""
        del self._requests[bisect_left(self._requests, self._key(request), key=self._key)]

    def serve(self, admit: Callable[[Request], Verdict]) -> None:
        """Offer requests to `admit` in order; those that it admits leave the queue.

        Smaller requests may pass one that does not fit, but the number is limited over its whole
        wait, so it does not starve.
        """
        admitted: list[Request] = []
        refused: list[Request] = []
        num_passed = 0
        for request in self._requests:
            verdict = admit(request)
            if verdict is Verdict.ADMITTED:
                admitted.append(request)
                for other in refused:
                    other.num_bypasses += 1
            elif verdict is Verdict.FULL or num_passed == LOOK_AHEAD:
                break
            else:
                num_passed += 1
                if verdict is Verdict.REFUSED:
                    refused.append(request)
            if refused and max(other.num_bypasses for other in refused) >= MAX_BYPASSES:
                break
        for request in admitted:
            self.remove(request)

    def choose_victim(self, running: list[Request]) -> Request | None:
        """The request to preempt: the last in the order of service that is not protected."""
        candidates = [request for request in running if not request.protected]
        return max(candidates, key=self._key, default=None)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)
