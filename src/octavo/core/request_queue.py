"""RequestQueue: the order in which waiting requests are served and running ones preempted."""

from __future__ import annotations

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
        """A request that is in the queue leaves it: admitted, or finished while it waited."""
        del self._requests[bisect_left(self._requests, self._key(request), key=self._key)]

    def choose_victim(self, running: list[Request]) -> Request | None:
        """The request to preempt: the last in the order of service that is not protected."""
        candidates = [request for request in running if not request.protected]
        return max(candidates, key=self._key, default=None)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)
