"""Progress of something that takes bytes: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm


def no_progress(num_bytes: int) -> None:
    """For callers that show none."""


@contextmanager
def byte_progress(what: str, total: int, *, initial: int = 0) -> Iterator[Callable[[int], None]]:
    """Gives a function that any thread calls with the number of bytes it has done.

    The bar is on standard error, and only when that is a terminal; TQDM_DISABLE=1 turns it off
    there too.
    """
    lock = threading.Lock()
    bar = tqdm(
        total=total,
        initial=initial,
        desc=what,
        unit="B",
        unit_scale=True,
        dynamic_ncols=True,
        disable=None,
    )

    def advance(num_bytes: int) -> None:
        with lock:
            bar.update(num_bytes)

    with bar:
        yield advance
