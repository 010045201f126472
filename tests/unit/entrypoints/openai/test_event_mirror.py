"""Events of background responses as other processes read them."""

import asyncio

import fakeredis
import pytest

from octavo.entrypoints.openai import event_mirror, event_store, redis_store
from octavo.entrypoints.openai.background import BackgroundRuns, EventLog
from octavo.entrypoints.openai.event_mirror import EventMirror
from octavo.entrypoints.openai.event_store import Chunk, SqliteEvents, open_event_store
from octavo.types.errors import GenerationError


def event(number):
    return b"event: x\ndata: %d\n\n" % number


def events(*numbers):
    return b"".join(map(event, numbers))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(event_mirror, "INTERVAL", 0.001)


@pytest.fixture(params=["sqlite", "redis"])
def address(request, tmp_path, monkeypatch):
    """Where processes find each other's events."""
    server = fakeredis.FakeServer()
    monkeypatch.setattr(
        redis_store.Redis, "from_url", lambda address: fakeredis.FakeAsyncRedis(server=server)
    )
    return {"sqlite": f"sqlite:///{tmp_path}/responses.db", "redis": "redis://here"}[request.param]


def process(address):
    """What one API process has of it."""
    return BackgroundRuns(EventMirror(open_event_store(address)))


async def read(log, after=-1):
    return b"".join([part async for part in log.read(after)])


async def test_another_process_reads_what_is_written_and_what_was(address):
    one, two = process(address), process(address)
    go_on = asyncio.Event()

    async def write(log):
        await log.write(events(0, 1, 2))
        await go_on.wait()
        for number in range(3, 9):
            await log.write(event(number))
            await asyncio.sleep(0.002)
        await log.end(event(9))

    one.start("a", write)
    readers = []
    for after in (-1, 4):
        log = await two.events("a", may_begin=True)
        readers.append(asyncio.create_task(read(log, after)))
    await asyncio.sleep(0.02)
    go_on.set()
    whole, rest = await asyncio.gather(*readers)
    assert whole == events(*range(10))
    assert rest == events(*range(5, 10))
    late = await two.events("a", may_begin=False)
    assert await read(late, 1) == events(*range(2, 10))
    assert await read(late, 50) == b""
    assert await two.events("b", may_begin=False) is None
    await two.forget("a")
    assert await two.events("a", may_begin=False) is None
    await one.stop()
    await two.stop()


async def test_a_process_that_stops_shares_its_last_events(address):
    one, two = process(address), process(address)

    async def write(log):
        await log.write(event(0))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await log.end(event(1))

    one.start("a", write)
    await asyncio.sleep(0.01)
    await one.stop()
    assert await read(await two.events("a", may_begin=False)) == events(0, 1)
    await two.stop()


async def test_more_events_than_a_chunk_and_a_read_hold(address, monkeypatch):
    monkeypatch.setattr(event_mirror, "_MAX_CHUNK", 2)
    monkeypatch.setattr(event_store, "READ_CHUNKS", 3)
    monkeypatch.setattr(redis_store, "READ_CHUNKS", 3)
    one, two = process(address), process(address)

    async def write(log):
        await log.end(events(*range(20)))

    one.start("a", write)
    log = await two.events("a", may_begin=True)
    assert await read(log, 3) == events(*range(4, 20))
    await one.stop()
    await two.stop()


class Memory:
    """A store that fails as told."""

    def __init__(self):
        self.chunks = []
        self.fails = 0
        self.fails_late = False

    async def add(self, chunks):
        if self.fails and not self.fails_late:
            self.fails -= 1
            raise OSError("the disk is full")
        self.chunks.append(chunks["a"])
        if self.fails:
            self.fails -= 1
            raise OSError("no answer")

    async def read(self, key, begin):
        return self.chunks[begin:]

    def close(self):
        pass


@pytest.mark.parametrize("late", [False, True])
async def test_a_store_that_fails_is_tried_again(late):
    store = Memory()
    store.fails, store.fails_late = 3, late
    mirror, log = EventMirror(store), EventLog()
    mirror.follow("a", log)
    for number in range(5):
        await log.write(event(number))
        await asyncio.sleep(0.002)
    await log.end(b"")
    assert await read(mirror.reader("a")) == events(*range(5))
    await mirror.stop()


async def test_readers_are_told_when_a_writer_is_gone_or_its_events_are(monkeypatch):
    store = Memory()
    store.chunks = [Chunk(0, [b"x"])]
    monkeypatch.setattr(event_mirror, "SILENCE", 0.01)
    with pytest.raises(GenerationError, match="is gone"):
        await read(EventMirror(store).reader("a"))
    store.chunks = [Chunk(7, [b"x"], True)]
    with pytest.raises(GenerationError, match="no longer kept"):
        await read(EventMirror(store).reader("a"))


async def test_a_quiet_writer_gives_signs_of_life(monkeypatch):
    monkeypatch.setattr(event_mirror, "SIGN_OF_LIFE", 0.01)
    store = Memory()
    mirror, log = EventMirror(store), EventLog()
    mirror.follow("a", log)
    await asyncio.sleep(0.1)
    assert 2 <= len(store.chunks) <= 11
    assert all(not chunk.events for chunk in store.chunks)
    await log.end(event(0))
    assert await read(mirror.reader("a")) == event(0)
    await mirror.stop()


async def test_the_oldest_events_go_when_a_file_is_full(tmp_path):
    store = SqliteEvents(tmp_path / "x.db", max_bytes=350)
    for key in "abc":
        await store.add({key: Chunk(0, [b"x" * 90])})
    await store.add({"d": Chunk(0, [b"x" * 90], True)})
    assert await store.read("a", 0) == []
    for key in "bc":
        assert len(await store.read(key, 0)) == 1
    await store.add({"d": Chunk(1, [b"x" * 1000], True)})
    for key in "abcd":
        assert await store.read(key, 0) == []
    store.close()


def test_one_process_has_its_events_anyway():
    assert open_event_store("memory") is None
