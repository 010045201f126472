"""Downloads cut small, whose second tries come at once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from octavo.checkpoints import download, object_store

CHUNK = 16384


@pytest.fixture
def small_and_quick(monkeypatch, tmp_path):
    """Chunks of CHUNK bytes, waits of milliseconds, and a cache of the test's own."""
    monkeypatch.setattr(download, "CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(download, "_FIRST_WAIT", 0.01)
    wait = {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=5)}
    monkeypatch.setattr(object_store, "_RETRY", {"max_retries": 1, "backoff": wait})
    monkeypatch.setenv("OCTAVO_CACHE_ROOT", str(tmp_path / "cache"))
