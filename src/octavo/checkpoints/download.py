"""Downloads: remote files into a folder, by parallel ranges, resumed where they broke off."""

from __future__ import annotations

import fcntl
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from octavo.checkpoints.object_store import RangesNotSupportedError, RemoteFile
from octavo.utils.logging import get_logger
from octavo.utils.progress import byte_progress

T = TypeVar("T")

logger = get_logger(__name__)

CHUNK_BYTES = 8 << 20
NUM_THREADS = 8  # each holds one chunk
_ATTEMPTS = 5  # for one chunk
_FIRST_WAIT = 0.2  # seconds; doubles
_STATE_FOLDER = ".octavo"


class Source(Protocol):
    """Where files come from; see RemoteFolder."""

    def read(self, file: RemoteFile, start: int, end: int) -> bytes: ...

    def stream(self, file: RemoteFile) -> Iterator[bytes]: ...


class Download:
    """Brings files to a folder and remembers which content they have.

    A file appears under its name when it is whole. Of one that is not, the chunks that came are
    kept, and a later call fetches the others, unless the file has changed. Memory: NUM_THREADS
    chunks. Hold `locked` around every other call.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state = folder / _STATE_FOLDER

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from writing to the folder; waits for one that does."""
        self._state.mkdir(parents=True, exist_ok=True)
        with (self._state / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def is_current(self, file: RemoteFile) -> bool:
        """Whether the folder has the whole file, with this content."""
        path = self.folder / file.name
        return path.is_file() and path.stat().st_size == file.size and self._tag(file) == file.tag

    def remove_strangers(self, files: Sequence[RemoteFile]) -> None:
        """Drop what was fetched once and is not among `files` now."""
        known = {file.name for file in files}
        for state in self._state.rglob("*.tag"):
            name = state.relative_to(self._state).as_posix().removesuffix(".tag")
            if name not in known:
                (self.folder / name).unlink(missing_ok=True)
                state.unlink()

    def fetch(self, source: Source, files: Sequence[RemoteFile], what: str) -> None:
        """Bring those files that are not here yet; `what` names them all in the log.

        Raises CheckpointError, and ConnectionError after several attempts.
        """
        missing = [file for file in files if not self.is_current(file)]
        if not missing:
            return
        partial = [_Partial(self._state / file.name, file) for file in missing]
        total = sum(file.size for file in missing)
        done = sum(part.num_done for part in partial)
        started = time.monotonic()
        logger.info(
            "%s: fetching %d files, %.1f MB%s",
            what,
            len(missing),
            total / 1e6,
            f", of which {done / 1e6:.1f} MB are here" if done else "",
        )
        with byte_progress("download", total, initial=done) as advance:
            _fetch_chunks(source, partial, advance)
        for part in partial:
            self._finish(part)
        seconds = time.monotonic() - started
        logger.info("%s: fetched in %.1f s (%s)", what, seconds, self.folder)

    def _finish(self, part: _Partial) -> None:
        target = self.folder / part.file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(part.data, target)
        tag = self._state / f"{part.file.name}.tag"
        tag.write_text(part.file.tag, encoding="utf-8")
        part.journal.unlink(missing_ok=True)

    def _tag(self, file: RemoteFile) -> str | None:
        path = self._state / f"{file.name}.tag"
        return path.read_text(encoding="utf-8") if path.is_file() else None


class _Journal(msgspec.Struct):
    """The first line of a journal; the other lines are numbers of chunks that are on disk."""

    tag: str
    size: int
    chunk: int


class _Partial:
    """A file that is being fetched: its data so far, and which chunks those are."""

    def __init__(self, path: Path, file: RemoteFile) -> None:
        self.file = file
        self.data = path.with_name(f"{path.name}.part")
        self.journal = path.with_name(f"{path.name}.journal")
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._done = self._recover()

    @property
    def num_done(self) -> int:
        """Bytes that are here."""
        return sum(end - start for start, end in map(self._span, self._done))

    def missing(self) -> list[tuple[int, int]]:
        """(start, end) of the chunks that are not here."""
        count = -(-self.file.size // CHUNK_BYTES)
        return [self._span(index) for index in range(count) if index not in self._done]

    def write(self, start: int, data: bytes) -> None:
        """Put a chunk on disk, then into the journal."""
        descriptor = os.open(self.data, os.O_WRONLY)
        try:
            view, position = memoryview(data), start
            while view:
                count = os.pwrite(descriptor, view, position)
                view, position = view[count:], position + count
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        with self._lock, self.journal.open("a", encoding="utf-8") as journal:
            journal.write(f"{start // CHUNK_BYTES}\n")

    def restart(self) -> None:
        """Forget what is here."""
        header = _Journal(self.file.tag, self.file.size, CHUNK_BYTES)
        self.journal.write_bytes(msgspec.json.encode(header) + b"\n")
        with self.data.open("wb") as data:
            data.truncate(self.file.size)
        self._done = set()

    def _recover(self) -> set[int]:
        """The chunks that an earlier download of the same content left."""
        expected = _Journal(self.file.tag, self.file.size, CHUNK_BYTES)
        try:
            first, *rest = self.journal.read_bytes().split(b"\n")
            known = msgspec.json.decode(first, type=_Journal) == expected
            # The last line may be cut short.
            chunks = {int(line) for line in rest[:-1]}
            known = known and self.data.stat().st_size == self.file.size
        except (OSError, ValueError, msgspec.DecodeError):
            known, chunks = False, set()
        if not known:
            self.restart()
            return set()
        return {chunk for chunk in chunks if 0 <= chunk * CHUNK_BYTES < self.file.size}

    def _span(self, index: int) -> tuple[int, int]:
        start = index * CHUNK_BYTES
        return start, min(start + CHUNK_BYTES, self.file.size)


def _fetch_chunks(
    source: Source, partial: Sequence[_Partial], advance: Callable[[int], None]
) -> None:
    stop = threading.Event()

    def fetch(part: _Partial, start: int, end: int) -> None:
        if stop.is_set():
            return
        try:
            data = _persistently(lambda: source.read(part.file, start, end), stop)
            part.write(start, data)
            advance(len(data))
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="octavo-download") as pool:
        work = [
            (part, pool.submit(fetch, part, start, end))
            for part in partial
            for start, end in part.missing()
        ]
        whole: list[_Partial] = []
        try:
            for part, future in work:
                try:
                    future.result()
                except RangesNotSupportedError:
                    whole.append(part)
                    break
        finally:
            stop.set()
    if whole:
        for part in partial:
            _persistently(functools.partial(_fetch_whole, source, part, advance))


def _fetch_whole(source: Source, part: _Partial, advance: Callable[[int], None]) -> None:
    """From a server that knows no ranges."""
    part.restart()
    position = 0
    with part.data.open("r+b") as data:
        for piece in source.stream(part.file):
            data.write(piece)
            position += len(piece)
            advance(len(piece))
        data.flush()
        os.fsync(data.fileno())
    if position != part.file.size:
        raise ConnectionError(f"{part.file.name}: {position} of {part.file.size} bytes came")


def _persistently(action: Callable[[], T], stop: threading.Event | None = None) -> T:
    """The action's result, after several attempts if the connection breaks."""
    wait = _FIRST_WAIT
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return action()
        except ConnectionError as error:
            if attempt == _ATTEMPTS or (stop is not None and stop.is_set()):
                raise
            logger.debug("attempt %d: %s", attempt, error)
            time.sleep(wait)
            wait *= 2
    raise AssertionError("unreachable")
