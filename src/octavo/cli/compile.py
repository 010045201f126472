"""`octavo compile [MODEL]`: a model's GPU kernels, compiled ahead of its first start."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from octavo.cli.arguments import engine_parser, parse_engine
from octavo.config.flags import FlagParser
from octavo.config.octavo_config import OctavoConfig
from octavo.kernels.compile_manifest import NO_TRITON, compiler_name
from octavo.kernels.compile_process import AllReady, Compiled, CompileProcess
from octavo.platforms.detect import detect_platform, torch_version, usable_cpus
from octavo.types.errors import ConfigError
from octavo.types.platform_info import PlatformInfo
from octavo.utils import envs

_TARGET = re.compile(r"sm_?(\d+)(\d)a?")
_GIB = 1 << 30


def parser() -> FlagParser:
    """The flags of the command."""
    made = engine_parser(
        "octavo compile",
        "Compile the GPU kernels that an engine with these flags needs, so that its first start "
        "finds them. No GPU is needed when --target names one; the cache may be copied to where "
        "the same versions of octavo, torch and Triton are installed.",
        server=False,
    )
    made.add_argument(
        "--target", help="GPU to compile for, as sm_90a; by default the one of this machine"
    )
    made.add_argument(
        "--memory", type=float, default=141.0, help="Its memory in GiB, which decides defaults"
    )
    made.add_argument("--output", help="Folder of the kernel cache (default: the one in use)")
    made.add_argument(
        "--usage",
        choices=("server", "llm"),
        default="server",
        help="Whose defaults: of the server or of the class LLM (default: server)",
    )
    return made


def main(argv: Sequence[str]) -> int:
    """Compile, and print a line per kernel."""
    engine_args, _, others = parse_engine(parser(), argv, server=False)
    _check_installation()
    platform = _platform(others["target"], others["memory"])
    config = engine_args.create_engine_config(platform, others["usage"], weights=False)
    folder = others["output"]
    return _compile(config, Path(folder) if folder else envs.kernel_cache())


def _compile(config: OctavoConfig, folder: Path) -> int:
    process = CompileProcess(msgspec.msgpack.encode(config), folder)
    try:
        for event in process.events():
            if isinstance(event, Compiled):
                print(f"{event.seconds:6.2f} s  {event.kernel.name}", flush=True)
            elif isinstance(event, AllReady):
                print(
                    f"{event.num_kernels} kernels in {folder}, {event.num_failed} failed; "
                    f"{event.seconds:.1f} s"
                )
                for step in event.not_rehearsed:
                    print(f"compiled only when it is met: {step}")
                return 1 if event.num_failed else 0
    finally:
        process.close()
    raise ConfigError("the compiling process ended early; its messages are above")


def _platform(target: str | None, memory: float) -> PlatformInfo:
    if target is None:
        return detect_platform("cuda")
    match = _TARGET.fullmatch(target.lower())
    if match is None:
        raise ConfigError(f"--target {target!r} is not a GPU architecture; write sm_90a")
    size = int(memory * _GIB)
    capability = (int(match[1]), int(match[2]))
    return PlatformInfo("cuda", target, size, size, capability=capability, num_cpus=usable_cpus())


def _check_installation() -> None:
    if compiler_name() == NO_TRITON:
        raise ConfigError("Triton is not installed; install the CUDA build of torch, with it")
    if torch_version().endswith("+cpu"):
        raise ConfigError(
            "the installed torch is a CPU build; install the CUDA build (it needs no GPU here)"
        )
