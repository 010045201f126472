"""Compile two kernels for sm_90a into a cache and load them again; prints what happened as JSON.

Run as a program, with Triton and without its interpreter: it replaces Triton's driver.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import torch
from triton import knobs
from triton.runtime import build, driver

from octavo.kernels import inputs, norm
from octavo.kernels.compile_cache import use_kernel_cache
from octavo.kernels.compile_jobs import (
    compile_job,
    load_job,
    recorded_launches,
    target_of,
    use_target,
    watch_compiler,
)
from octavo.kernels.compile_loader import KernelLoader
from octavo.kernels.compile_manifest import (
    KernelManifest,
    ManifestEntry,
    read_manifest,
    write_manifest,
)
from octavo.kernels.compile_pool import CompilePool
from octavo.kernels.compile_start import KernelStart

HOPPER = target_of((9, 0))


def launch() -> None:
    ints = torch.zeros(5, dtype=torch.int32)
    inputs.staged_write(ints, ints, ints)
    x, weight = torch.zeros(4, 256, dtype=torch.bfloat16), torch.zeros(256, dtype=torch.bfloat16)
    norm.rms_norm(x, weight, 1e-6)
    norm.rms_norm(x, weight, 1e-6)


def pretend_to_launch() -> list[str]:
    """From now on launches only say which kernel they are of."""
    launched: list[str] = []

    class Launcher:
        def __init__(self, source, metadata):
            self._name = metadata.name

        def __call__(self, *args):
            launched.append(self._name)

    utils = SimpleNamespace(
        get_device_properties=lambda device: {"max_shared_mem": 1 << 18},
        load_binary=lambda name, code, shared, device: (name, len(code), 0, 0, 1024),
    )
    active = driver.active
    active.launcher_cls, active.utils = Launcher, utils
    return launched


def forget_loaded() -> None:
    for kernel in (inputs._staged_write_kernel, norm._rms_norm_kernel):
        kernel.device_caches.clear()


def entry_folder(cache: Path, entry: str) -> Path:
    """The folder of a cache that holds a kernel's code."""
    return next(
        place
        for place in cache.iterdir()
        if any(entry in file.read_text() for file in place.glob("*.json"))
    )


def main() -> None:
    root = Path(sys.argv[1])
    cache = root / "cache"
    use_kernel_cache([cache])
    use_target(HOPPER)
    jobs = []
    with recorded_launches(jobs.append):
        launch()
    answer = {"recorded": [job.name for job in jobs], "compiled before": len(os.listdir(cache))}

    results = []
    pool = CompilePool(HOPPER, 2, results.append)
    broken = jobs[0].__class__(jobs[0].module, "no_such_kernel", jobs[0].data)
    for job in (*jobs, broken):
        pool.submit(job)
    while pool.num_left:
        pool.poll(1.0)
    answer["failures"] = [result.failure for result in results if result.failure]
    entries = {result.job: result.entry for result in results if result.entry}

    # Moved, and read-only beside a new one: what is there is used.
    moved = root / "moved"
    shutil.move(cache, moved)
    use_kernel_cache([root / "new", moved])
    launched = pretend_to_launch()
    compiled: list[str] = []
    watch_compiler(0, lambda job, entry: compiled.append(job.name))
    answer["loaded"] = [load_job(job, entries[job], 0) for job in jobs]
    launch()
    answer["launched"], answer["compiled by launches"] = list(launched), list(compiled)

    # The engine's loader does the same from a list, and notes what the list lacks.
    forget_loaded()
    launched.clear()
    known = ManifestEntry(jobs[0].module, jobs[0].name, jobs[0].data, entries[jobs[0]])
    gone = ManifestEntry(jobs[1].module, "no_such_kernel", jobs[1].data, entries[jobs[1]])
    folders = [root / "new", moved]
    write_manifest(folders[0], "key", KernelManifest(True, [known, gone]))
    torch.cuda.set_device = lambda device: None
    torch.cuda.get_device_capability = lambda device: (9, 0)
    start = KernelStart(folders, "key", KernelManifest(True, [known, gone]))
    loader = KernelLoader(start, torch.device("cuda", 0))
    loader.finish()
    launch()
    loader.close()
    listed = read_manifest(folders, "key")
    answer["loader"] = list(launched)
    answer["listed"] = [kernel.name for kernel in listed.kernels]

    # Host code is found too where nothing says which format Python's executable has.
    names = set()
    for told in (("64bit", "ELF"), ("64bit", "")):
        platform.architecture = lambda told=told: told
        getattr(build.platform_key, "cache_clear", lambda: None)()
        names.add(build.platform_key())
    answer["names of host code"] = sorted(names)

    # Without the list Triton finds the same entries by itself.
    forget_loaded()
    began = time.monotonic()
    answer["same entries"] = [compile_job(job, HOPPER) for job in jobs] == [
        entries[job] for job in jobs
    ]
    folders_made = {p.name for p in (root / "new").iterdir() if p.is_dir()}
    answer["new entries"] = sorted(folders_made - {"manifests"})

    answer["seconds"] = time.monotonic() - began

    # A broken file is as good as none.
    place = entry_folder(moved, entries[jobs[0]])
    code = next(place.glob("*.cubin"))
    code.write_bytes(code.read_bytes()[:-7])
    answer["broken loads"] = load_job(jobs[0], entries[jobs[0]], 0)
    answer["broken compiles"] = compile_job(jobs[0], HOPPER) == entries[jobs[0]]
    answer["repaired loads"] = load_job(jobs[0], entries[jobs[0]], 0)

    # Another GPU's kernels are other entries.
    answer["another target"] = compile_job(jobs[0], target_of((8, 0))) != entries[jobs[0]]
    answer["stored"] = sorted({file.suffix for file in moved.rglob("*") if file.is_file()})
    assert knobs.runtime.jit_cache_hook is None
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
