"""Weights from files to a device: read by several threads, copied straight to where they stay."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

import torch

from octavo.checkpoints.tensors import NUMPY_DTYPES, TensorHeader
from octavo.model_loader.placement import Placement, placements_of
from octavo.model_loader.weights import torch_dtype
from octavo.models.common.weights import WeightMap
from octavo.platforms.interface import Event, Platform
from octavo.types.errors import CheckpointError
from octavo.utils.progress import no_progress

BUFFER_BYTES = 8 << 20  # a piece of a tensor
BUFFERS_PER_THREAD = 2  # one is filled while the other is copied


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """Bytes of a file and the part of a parameter that they fill."""

    name: str
    header: TensorHeader
    placement: Placement

    @property
    def first_byte(self) -> int:
        """Where in the file it begins."""
        itemsize = torch_dtype(self.header.dtype).itemsize
        return self.header.offset + self.placement.source_offset * itemsize


class StreamingReader:
    """Fills parameters from plainly stored tensors, with bounded memory on the host.

    Threads take pieces in the order of the files, read them into (on a GPU, pinned) buffers of
    their own and queue the copies on streams of their own, so reading, copying and whatever the
    device does beside overlap.
    """

    def __init__(self, platform: Platform, num_threads: int) -> None:
        self._platform = platform
        self._num_threads = num_threads

    def read(
        self,
        weights: WeightMap,
        headers: Mapping[str, TensorHeader],
        advance: Callable[[int], None] = no_progress,
    ) -> set[str]:
        """Read what `weights` takes of `headers`; returns the names that are left to others.

        Raises CheckpointError that names the tensor.
        """
        pieces, left = _pieces(weights, headers)
        queue: SimpleQueue[Piece] = SimpleQueue()
        for piece in pieces:
            queue.put(piece)
        failures: list[Exception] = []
        threads = [
            threading.Thread(
                target=self._work, args=(queue, failures, advance), name=f"octavo-weights-{i}"
            )
            for i in range(min(self._num_threads, len(pieces)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return left

    def _work(
        self,
        queue: SimpleQueue[Piece],
        failures: list[Exception],
        advance: Callable[[int], None],
    ) -> None:
        try:
            with _OpenFiles() as files, self._platform.own_stream():
                ring = [_Buffer(self._platform) for _ in range(BUFFERS_PER_THREAD)]
                turn = 0
                while not failures:
                    try:
                        piece = queue.get_nowait()
                    except Empty:
                        break
                    advance(ring[turn].fill(piece, files))
                    turn = (turn + 1) % len(ring)
        except Exception as error:
            failures.append(error)


class _Buffer:
    """Host memory for one piece, which may be written again when its copy is done."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._data = platform.host_buffer((BUFFER_BYTES,), torch.uint8)
        self._copied: Event | None = None

    def fill(self, piece: Piece, files: _OpenFiles) -> int:
        """Read a piece and queue its copy to the device; returns its bytes."""
        if self._copied is not None:
            self._copied.synchronize()
        dtype = torch_dtype(piece.header.dtype)
        size = piece.placement.span * dtype.itemsize
        if size > self._data.shape[0]:
            # One row of a tensor that is longer than a buffer.
            self._data = self._platform.host_buffer((size,), torch.uint8)
        data = self._data[:size]
        files.read(piece, data)
        source = piece.placement.view(data.view(dtype))
        with torch.no_grad():
            piece.placement.target.copy_(source, non_blocking=True)
        self._copied = self._platform.record_event()
        return size


class _OpenFiles:
    """A thread's descriptors of weight files."""

    def __init__(self) -> None:
        self._descriptors: dict[Path, int] = {}

    def __enter__(self) -> _OpenFiles:
        return self

    def __exit__(self, *exception: object) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def read(self, piece: Piece, into: torch.Tensor) -> None:
        """Read a piece's bytes, all of them."""
        header, offset = piece.header, piece.first_byte
        view = memoryview(into.numpy())  # type: ignore[arg-type]
        try:
            descriptor = self._descriptor(header.file)
            while view:
                count = os.preadv(descriptor, [view], offset)
                if not count:
                    raise CheckpointError(
                        f"{header.file} ends within {piece.name}; the file is incomplete: download "
                        "it again"
                    )
                view, offset = view[count:], offset + count
        except OSError as error:
            raise CheckpointError(
                f"can't read {piece.name} from {header.file}: {error.strerror or error}"
            ) from error

    def _descriptor(self, path: Path) -> int:
        if path not in self._descriptors:
            self._descriptors[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return self._descriptors[path]


def _pieces(
    weights: WeightMap, headers: Mapping[str, TensorHeader]
) -> tuple[list[Piece], set[str]]:
    pieces: list[Piece] = []
    left: set[str] = set()
    for name, header in headers.items():
        target = weights.targets.get(weights.canonical(name))
        if target is None:
            continue
        placements = placements_of(target) if _is_plain(header) else None
        if placements is None:
            left.add(name)
            continue
        itemsize = torch_dtype(header.dtype).itemsize
        for placement in placements:
            pieces += _cut(name, header, placement, BUFFER_BYTES // itemsize)
    pieces.sort(key=lambda piece: (piece.header.file, piece.first_byte))
    return pieces, left


def _cut(
    name: str, header: TensorHeader, placement: Placement, max_elements: int
) -> Iterator[Piece]:
    for part in placement.pieces(max_elements):
        if part.span:
            yield Piece(name, header, part)


def _is_plain(header: TensorHeader) -> bool:
    """Whether the stored bytes are the elements, one after the other."""
    if header.dtype not in NUMPY_DTYPES or header.strides is not None or not header.direct:
        return False
    return header.nbytes == math.prod(header.shape) * torch_dtype(header.dtype).itemsize
