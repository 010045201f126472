"""Ranks of a tensor-parallel group as threads of one process, for models on a CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch


class Meeting:
    """Where the ranks of a group put what they bring to a collective."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=60)
        self.brought: list[torch.Tensor | None] = [None] * size


class ThreadRank:
    """One rank; a collective waits until all threads have come."""

    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.rank = rank
        self.size = meeting.barrier.parties
        self._meeting = meeting

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack(self._gather(x)).sum(dim=0)

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat(self._gather(x), dim=-1)

    def _gather(self, x: torch.Tensor) -> list[Any]:
        self._meeting.brought[self.rank] = x
        self._meeting.barrier.wait()
        brought = list(self._meeting.brought)
        self._meeting.barrier.wait()
        return brought


def thread_ranks(size: int) -> list[ThreadRank]:
    """The ranks of a new group."""
    meeting = Meeting(size)
    return [ThreadRank(rank, meeting) for rank in range(size)]


def on_all_ranks(calls: list[Callable[[], Any]]) -> list[Any]:
    """What each rank's call returns, all of them running at once."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return [future.result() for future in [threads.submit(call) for call in calls]]
