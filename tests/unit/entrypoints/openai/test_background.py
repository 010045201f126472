"""Responses in the background: their events for any reader, within bounds."""

import asyncio

import pytest

from octavo.entrypoints.openai.background import BackgroundRuns, EventLog
from octavo.types.errors import QueueFullError


def event(number):
    return b"event: x\ndata: %d\n\n" % number


async def write_ten(log):
    for number in range(0, 10, 2):
        await log.write(event(number) + event(number + 1))
        await asyncio.sleep(0)
    await log.end(b"")


async def read(log, after=-1):
    return b"".join([part async for part in log.read(after)])


async def test_every_reader_gets_every_event_once_in_order():
    log = EventLog()
    readers = [asyncio.create_task(read(log, after)) for after in (-1, 3)]
    await asyncio.sleep(0)
    await write_ten(log)
    late = await read(log, 8)
    whole, part = await asyncio.gather(*readers)
    assert whole == b"".join(map(event, range(10)))
    assert part == b"".join(map(event, range(4, 10)))
    assert late == event(9)
    assert await read(log, 50) == b""


async def test_a_run_is_cancelled_before_and_after_it_has_begun():
    runs = BackgroundRuns()
    told = []

    async def forever(log):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append(True)

    for pause in (0, 1):
        log = runs.start("a", forever)
        for _ in range(pause):
            await asyncio.sleep(0)
        assert await runs.cancel("a")
        assert log.ended
    assert told == [True, True]
    assert not await runs.cancel("a")
    await runs.wait_until_idle()


async def test_runs_are_bounded():
    runs = BackgroundRuns(max_runs=1)
    runs.check_room()

    async def forever(log):
        with pytest.raises(asyncio.CancelledError):
            await asyncio.Event().wait()

    runs.start("a", forever)
    with pytest.raises(QueueFullError):
        runs.check_room()
    await runs.stop()
    runs.check_room()


async def test_old_events_go_when_there_are_too_many():
    runs = BackgroundRuns(max_bytes=3 * 10 * len(event(0)))
    for number in range(5):
        runs.start(str(number), write_ten)
        await runs.wait_until_idle()
    kept = [await runs.events(str(number), may_begin=True) for number in range(5)]
    assert [log is not None for log in kept] == [False, False, True, True, True]
    await runs.forget("3")
    assert await runs.events("3", may_begin=True) is None
    runs.start("5", write_ten)
    await runs.wait_until_idle()
    assert await runs.events("2", may_begin=False) is not None


async def test_a_run_that_fails_still_ends_for_its_readers():
    runs = BackgroundRuns()

    async def fail(log):
        raise ValueError("the store is away")

    log = runs.start("a", fail)
    assert await read(log) == b""
    await runs.wait_until_idle()
