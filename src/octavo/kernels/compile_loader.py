"""KernelLoader: bring compiled kernels to the device while weights load."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator

import msgspec
import torch

from octavo.kernels.compile_cache import use_kernel_cache
from octavo.kernels.compile_jobs import (
    CompileJob,
    load_job,
    prepare_compiler,
    target_of,
    watch_compiler,
)
from octavo.kernels.compile_manifest import KernelManifest, ManifestEntry, write_manifest
from octavo.kernels.compile_process import Compiled
from octavo.kernels.compile_start import Kernels, KernelStart
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

PATIENCE = 120.0  # seconds to wait for the compiling process
MAX_LISTED = 512  # kernels of a manifest, which grows by what was met while serving


class KernelLoader(Kernels):
    """Loads what KernelStart finds, in a thread, until `finish`.

    A kernel that it can't load is compiled by the launch that needs it, so nothing that goes
    wrong here is worse than a slow start; the next start knows of it.
    """

    def __init__(self, start: KernelStart, device: torch.device) -> None:
        use_kernel_cache(start.folders)
        self._device = device
        self._start = start
        self._loaded: list[ManifestEntry] = []
        self._num_missing = 0
        self._seconds = 0.0
        self._met: list[ManifestEntry] = []  # compiled by launches
        watch_compiler(device.index or 0, self._note)
        self._thread = threading.Thread(target=self._run, name="octavo-kernels", daemon=True)
        self._thread.start()
        if start.manifest is None:
            self._prepare_compiler()

    def finish(self) -> None:
        """Wait until the kernels that a start needs are loaded, and say how it went.

        Behind this no kernel is loaded in the background: a graph may be captured.
        """
        self._thread.join(PATIENCE)
        if self._thread.is_alive() and self._start.process is not None:
            logger.warning("kernels are compiled as they are met: %g s were not enough", PATIENCE)
            self._start.process.kill()
        self._thread.join()
        logger.info(
            "%d kernels from the %s, %.1f s of loading%s",
            len(self._loaded),
            "cache" if self._start.manifest is not None else "compiling process",
            self._seconds,
            f"; {self._num_missing} could not be had" if self._num_missing else "",
        )
        if self._start.manifest is not None:
            # Not earlier: it reads 400 MB, which weights and imports may have to wait behind.
            self._prepare_compiler()

    def close(self) -> None:
        """End the process that compiles, and let the next start know what this one met."""
        self._start.close()
        manifest = self._start.list_of_kernels()
        if not self._met or manifest is None:
            return
        listed = set(manifest.kernels)
        kernels = [*manifest.kernels, *(kernel for kernel in self._met if kernel not in listed)]
        if len(kernels) > MAX_LISTED or len(kernels) == len(listed):
            return
        try:
            complete: KernelManifest = msgspec.structs.replace(manifest, kernels=kernels)
            write_manifest(self._start.folders[0], self._start.key, complete)
        except OSError as error:
            logger.debug("the list of kernels can't be kept: %s", error)

    def _prepare_compiler(self) -> None:
        """For kernels that nobody has prepared: what the first of them would wait for."""
        target = target_of(torch.cuda.get_device_capability(self._device))
        threading.Thread(target=prepare_compiler, args=(target,), daemon=True).start()

    def _note(self, job: CompileJob, entry: str) -> None:
        logger.debug("%s was compiled when it was met: %s", job.full_name, job.data)
        self._met.append(ManifestEntry(job.module, job.name, job.data, entry))

    def _run(self) -> None:
        try:
            torch.cuda.set_device(self._device)
            self._load(self._kernels())
        except Exception as error:
            logger.warning("kernels are compiled as they are met: %s", error)

    def _kernels(self) -> Iterator[ManifestEntry]:
        manifest, process = self._start.manifest, self._start.process
        if manifest is not None:
            yield from manifest.kernels
        elif process is not None:
            for event in process.events():
                if not isinstance(event, Compiled):
                    break
                yield event.kernel
            process.leave()

    def _load(self, kernels: Iterable[ManifestEntry]) -> None:
        for kernel in kernels:
            began = time.monotonic()
            try:
                job = CompileJob(kernel.module, kernel.name, kernel.data)
                loaded = load_job(job, kernel.entry, self._device.index or 0)
            except Exception as error:
                logger.debug("can't load %s.%s: %s", kernel.module, kernel.name, error)
                loaded = False
            if loaded:
                self._loaded.append(kernel)
            self._num_missing += not loaded
            self._seconds += time.monotonic() - began
