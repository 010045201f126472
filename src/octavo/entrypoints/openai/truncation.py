"""Truncation: the oldest turns of a conversation are left out until the rest fits the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

Messages = list[dict[str, Any]]
Fits = Callable[[Messages], Awaitable[bool]]

_LASTING = ("system", "developer")


async def leave_out_oldest(messages: Messages, fits: Fits) -> Messages:
    """The messages without as few of the oldest as will do; the shortest rest if none does.

    `fits` is asked a number of times that grows with the logarithm of the number of turns.
    """
    if await fits(messages):
        return messages
    units = removable(messages)
    low, high = 1, len(units)
    while low < high:
        middle = (low + high) // 2
        if await fits(_without(messages, units[:middle])):
            high = middle
        else:
            low = middle + 1
    return _without(messages, units[:high])


def removable(messages: Sequence[dict[str, Any]]) -> list[list[int]]:
    """Numbers of messages that may go, in groups that go together, the oldest first.

    A turn is a user's message and what answers it, so that no result of a tool is left without its
    call, nor an answer without its question. System messages stay. Of the last turn the question
    and the last step stay: a step is an answer, or calls with their results.
    """
    turns: list[list[int]] = []
    for i, message in enumerate(messages):
        role = message["role"]
        if role in _LASTING:
            continue
        if role == "user" or not turns:
            turns.append([])
        turns[-1].append(i)
    if not turns:
        return []
    steps: list[list[int]] = []
    for i in turns.pop():
        role = messages[i]["role"]
        if role == "assistant":
            steps.append([])
        if steps:
            steps[-1].append(i)
    return turns + steps[:-1]


def _without(messages: Messages, units: Sequence[Sequence[int]]) -> Messages:
    gone = {i for unit in units for i in unit}
    return [message for i, message in enumerate(messages) if i not in gone]
