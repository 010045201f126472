"""Entries of the caches on disk: what counts as one, which are chosen, how they go."""

import os

import pytest

from octavo.utils.disk_cache import beyond_size, cache_entries, unused_since

DEVICE = "triton-3.6.0-abc-sm90"


def write(path, size, used):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (used, used))


@pytest.fixture
def root(tmp_path):
    kernels = tmp_path / "kernels"
    write(kernels / DEVICE / "K1" / "k.cubin", 100, 1000)
    write(kernels / DEVICE / "K1" / "k.cubin.digest", 10, 2000)
    write(kernels / DEVICE / "K2" / "k.cubin", 200, 3000)
    write(kernels / DEVICE / "manifests" / "m.json", 5, 4000)
    write(kernels / DEVICE / ".writable", 0, 1)
    write(kernels / "somebody's" / "data", 999, 1)  # a folder that others use, too
    write(tmp_path / "native" / "native-1.so", 50, 5000)
    write(tmp_path / "inductor" / "ab" / "code.py", 7, 6000)
    return tmp_path


def entries(root):
    found = cache_entries(root, root / "kernels")
    return {entry.path.name: entry for entry in found}


def test_what_is_there(root):
    found = entries(root)
    assert {name: (e.kind, e.group, e.size, e.last_used) for name, e in found.items()} == {
        "K1": ("kernels", DEVICE, 110, 2000),
        "K2": ("kernels", DEVICE, 200, 3000),
        "m.json": ("kernels", DEVICE, 5, 4000),
        "native-1.so": ("native", "", 50, 5000),
        "ab": ("inductor", "", 7, 6000),
    }


def test_nothing_is_there(tmp_path):
    assert cache_entries(tmp_path / "none", tmp_path / "nor this") == []


def test_reading_is_use(root):
    path = root / "kernels" / DEVICE / "K1" / "k.cubin"
    os.utime(path, (9000, 1000))
    assert entries(root)["K1"].last_used == 9000


def test_choosing(root):
    found = list(entries(root).values())
    assert [e.path.name for e in unused_since(found, 3000)] == ["K1"]
    assert [e.path.name for e in beyond_size(found, 372)] == []
    assert [e.path.name for e in beyond_size(found, 371)] == ["K1"]
    assert [e.path.name for e in beyond_size(found, 200)] == ["K1", "K2"]
    assert len(beyond_size(found, 0)) == 5


def test_removing(root):
    found = entries(root)
    for entry in found.values():
        entry.remove()
        entry.remove()
    assert entries(root) == {}
    assert (root / "kernels" / "somebody's" / "data").exists()
