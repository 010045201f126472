"""What `octavo doctor` looks at in the machine: GPU, processor, memory, limits, network."""

from __future__ import annotations

import os
import re
import resource
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from octavo.cli.cache import size_text
from octavo.cli.finding import Finding, Status
from octavo.cli.server_client import ServerClient
from octavo.platforms.detect import detect_cpu, detect_platform
from octavo.types.errors import ConfigError, OctavoError

GROUP = "machine"

_NVIDIA = "0x10de"  # its PCI vendor id
_DISPLAY_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controllers
_MIN_CAPABILITY = (8, 0)
_SMALL_MEMORY = 2 << 30  # bytes: less is not enough for the small model
_MANY_FILES = 4096  # open at once; every stream of a server takes one


def gpu(root: Path = Path("/")) -> Iterator[Finding]:
    """The GPU that octavo would use, or why it would not."""
    if not (root / "dev/nvidiactl").exists():
        if not _has_nvidia_card(root):
            yield Finding(GROUP, "GPU", Status.NOTE, "none by NVIDIA; octavo runs on the CPU")
            return
        yield Finding(
            GROUP,
            "GPU",
            Status.WARNING,
            "there is an NVIDIA GPU but no driver; octavo runs on the CPU",
            "install NVIDIA's driver; in a container, start it with --gpus all",
        )
        return
    try:
        found = detect_platform("cuda", root)
    except ConfigError as error:
        reason = str(error).removeprefix("device='cuda': ").removesuffix("; use --device cpu")
        remedy = "the CUDA build of torch: pip install --force-reinstall torch, or make serve"
        if "CPU build" not in reason:
            remedy = "nvidia-smi says more; CUDA_VISIBLE_DEVICES may hide the devices"
        yield Finding(GROUP, "GPU", Status.WARNING, f"octavo runs on the CPU: {reason}", remedy)
        return
    major, minor = found.capability or (0, 0)
    text = (
        f"{found.num_devices} x {found.device_name}, sm_{major}{minor}, driver {_driver(root)}, "
        f"{size_text(found.free_memory)} of {size_text(found.total_memory)} free"
    )
    if (major, minor) < _MIN_CAPABILITY:
        remedy = f"octavo is tested from sm_{_MIN_CAPABILITY[0]}{_MIN_CAPABILITY[1]} on"
        yield Finding(GROUP, "GPU", Status.WARNING, text, remedy)
    elif found.free_memory < found.total_memory // 2:
        remedy = "other processes hold the rest: nvidia-smi lists them"
        yield Finding(GROUP, "GPU", Status.WARNING, text, remedy)
    else:
        yield Finding(GROUP, "GPU", Status.OK, text)


def processor(root: Path = Path("/")) -> Iterator[Finding]:
    """Cores, vector instructions and memory that this process may use."""
    found = detect_cpu(root)
    everywhere = os.cpu_count() or found.num_cpus
    flags = ", ".join(found.cpu_flags) or "no AVX2"
    text = f"{found.device_name}, {found.num_cpus} of {everywhere} cores usable, {flags}"
    yield Finding(GROUP, "processor", Status.OK, text)
    memory = f"{size_text(found.free_memory)} of {size_text(found.total_memory)} free"
    if found.free_memory < _SMALL_MEMORY:
        remedy = "end other programs, or raise the container's limit"
        yield Finding(GROUP, "memory", Status.WARNING, memory, remedy)
    else:
        yield Finding(GROUP, "memory", Status.OK, memory)


def open_files() -> Iterator[Finding]:
    """How many connections a server could hold."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"at most {soft} at once" if soft != resource.RLIM_INFINITY else "any number"
    if soft != resource.RLIM_INFINITY and soft < _MANY_FILES:
        most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        remedy = f"for more streams than that: ulimit -n {most}"
        yield Finding(GROUP, "open files", Status.NOTE, text, remedy)
    else:
        yield Finding(GROUP, "open files", Status.OK, text)


def proxies() -> Iterator[Finding]:
    """Proxies that would catch what clients send to a server on this machine."""
    found = urllib.request.getproxies()
    if "http" not in found:
        return
    if urllib.request.proxy_bypass("localhost"):
        yield Finding(GROUP, "proxy", Status.OK, f"{found['http']}, not for localhost")
    else:
        yield Finding(
            GROUP,
            "proxy",
            Status.WARNING,
            f"{found['http']}, and requests for localhost would go there, too",
            "export NO_PROXY=localhost,127.0.0.1",
        )


def port(number: int) -> Iterator[Finding]:
    """Whether a server could listen there, or which one does."""
    name = f"port {number}"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", number))
        except OSError as error:
            obstacle = error.strerror or str(error)
        else:
            yield Finding(GROUP, name, Status.OK, "free")
            return
    try:
        models = ServerClient(f"http://127.0.0.1:{number}").models()
    except OctavoError:
        remedy = "octavo serve --port N takes another"
        yield Finding(GROUP, name, Status.WARNING, f"is taken ({obstacle})", remedy)
    else:
        yield Finding(GROUP, name, Status.OK, f"a server with {', '.join(models)} is there")


def _has_nvidia_card(root: Path) -> bool:
    return any(
        _text(folder / "vendor") == _NVIDIA and _text(folder / "class").startswith(_DISPLAY_CLASSES)
        for folder in root.glob("sys/bus/pci/devices/*")
    )


def _driver(root: Path) -> str:
    """The driver's version, as its kernel module tells it."""
    found = re.search(r"\s(\d+\.\d[\d.]*)\s", _text(root / "proc/driver/nvidia/version"))
    return found[1] if found else "of unknown version"


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
