"""Stores of responses: what is kept, within which bound, by every kind of store."""

import asyncio

import fakeredis
import pytest

from octavo.entrypoints.openai import redis_store
from octavo.entrypoints.openai.response_store import MemoryStore, SqliteStore, open_store
from octavo.types.errors import ConfigError


@pytest.fixture(params=["memory", "sqlite", "redis"])
def make_store(request, tmp_path, monkeypatch):
    """make_store(max_entries): an empty store of each kind."""
    stores = []

    def make(max_entries):
        if request.param == "redis":
            server = fakeredis.FakeAsyncRedis()
            monkeypatch.setattr(redis_store.Redis, "from_url", lambda address: server)
        addresses = {
            "memory": "memory",
            "sqlite": f"sqlite:///{tmp_path}/responses.db",
            "redis": "redis://here",
        }
        stores.append(open_store(addresses[request.param], max_entries))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


async def test_records_are_kept_replaced_and_deleted(make_store):
    store = make_store(10)
    await store.put("a", b"1")
    await store.put("a", b"\x00\xff")
    assert await store.get("a") == b"\x00\xff"
    assert await store.get("b") is None
    assert await store.delete("a")
    assert not await store.delete("a")
    assert await store.get("a") is None


async def test_a_record_is_swapped_only_for_the_one_that_was_seen(make_store):
    store = make_store(10)
    assert not await store.swap("a", b"", b"1")
    await store.put("a", b"1")
    assert not await store.swap("a", b"0", b"2")
    assert await store.get("a") == b"1"
    assert await store.swap("a", b"1", b"3")
    assert await store.get("a") == b"3"
    await store.delete("a")
    assert not await store.swap("a", b"3", b"4")
    assert await store.get("a") is None


async def test_nothing_is_lost_where_many_swap_at_once(make_store):
    store = make_store(10)
    await store.put("a", b"0")

    async def count(times):
        for _ in range(times):
            while True:
                seen = await store.get("a")
                if await store.swap("a", seen, b"%d" % (int(seen) + 1)):
                    break

    await asyncio.gather(*(count(5) for _ in range(4)))
    assert await store.get("a") == b"20"


async def test_the_one_used_longest_ago_goes_first(make_store):
    store = make_store(3)
    for key in "abc":
        await store.put(key, key.encode())
    await store.get("a")
    await store.put("d", b"d")
    assert [await store.get(key) for key in "abcd"] == [b"a", None, b"c", b"d"]


async def test_hundreds_of_records_stay_within_the_bound(make_store):
    store = make_store(20)
    for number in range(300):
        await store.put(str(number), b"x" * 100)
    found = [number for number in range(300) if await store.get(str(number)) is not None]
    assert found == list(range(280, 300))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_bytes_are_bounded_too(kind, tmp_path):
    path = tmp_path / "responses.db"
    store = MemoryStore(100, 1000) if kind == "memory" else SqliteStore(path, 100, 1000)
    for key in "abcde":
        await store.put(key, b"x" * 300)
    assert [await store.get(key) is not None for key in "abcde"] == [False, False, True, True, True]
    await store.put("f", b"x" * 2000)
    assert await store.get("f") is None
    store.close()


async def test_a_file_is_shared_and_outlives_its_store(tmp_path):
    one, two = (SqliteStore(tmp_path / "responses.db", 10) for _ in range(2))
    await one.put("a", b"1")
    assert await two.get("a") == b"1"
    one.close()
    two.close()
    three = SqliteStore(tmp_path / "responses.db", 10)
    assert await three.get("a") == b"1"
    three.close()


@pytest.mark.parametrize(
    "address", ["", "disk", "http://x", "sqlite://", "sqlite:///no/such/dir/f"]
)
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(ConfigError, match="responses_store"):
        open_store(address, 1)
