"""Choices made where the user made none: dtype, lengths, budgets, graph sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from octavo.config.architectures import ModelArch
from octavo.config.engine_options import EngineOptions
from octavo.config.runtime import CompilationMode
from octavo.types.errors import ConfigError
from octavo.types.platform_info import PlatformInfo
from octavo.utils.misc import next_power_of_2

Usage = Literal["llm", "server"]
DType = Literal["float32", "bfloat16", "float16"]

LARGE_GPU_BYTES = 70 << 30
DEFAULT_ITL_TARGET_MS = 50.0
MAX_GRAPH_TOKENS = 512
_DTYPES: dict[str, DType] = {
    "float32": "float32",
    "float": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "half": "float16",
}


@dataclass
class Notes:
    """Collects what was chosen, and why, while a configuration is resolved."""

    lines: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        """Remember one choice."""
        self.lines.append(line)


def choose_dtype(asked: str, arch: ModelArch, platform: PlatformInfo, notes: Notes) -> DType:
    """The compute dtype. Raises ConfigError for one the device can't compute in."""
    has_bf16 = platform.capability is None or platform.capability >= (8, 0)
    if asked == "auto":
        return _automatic_dtype(arch, platform, has_bf16, notes)
    dtype = _DTYPES[asked]
    if platform.device_type == "cpu":
        if dtype != "float32" and not {"avx512_bf16", "amx_bf16"} & set(platform.cpu_flags):
            notes.add(
                f"dtype={dtype} as asked; this CPU has no 16-bit matrix instructions, float32 "
                "would be several times faster"
            )
    elif dtype == "bfloat16" and not has_bf16:
        raise ConfigError(
            f"dtype='bfloat16': {platform.device_name} (compute capability "
            f"{_version(platform)}) has no bfloat16 arithmetic; use --dtype float16"
        )
    return dtype


def _automatic_dtype(
    arch: ModelArch, platform: PlatformInfo, has_bf16: bool, notes: Notes
) -> DType:
    if platform.device_type == "cpu":
        if arch.dtype != "float32":
            notes.add(
                f"dtype=float32 (checkpoint: {arch.dtype}): on a CPU float32 is exact, and faster "
                "than 16-bit types without AVX512-BF16 or AMX"
            )
        return "float32"
    wanted = "bfloat16" if arch.dtype not in ("float16", "bfloat16") else _DTYPES[arch.dtype]
    if wanted == "bfloat16" and not has_bf16:
        notes.add(
            f"dtype=float16: {platform.device_name} (compute capability {_version(platform)}) has "
            "no bfloat16 arithmetic"
        )
        return "float16"
    if wanted != arch.dtype:
        notes.add(f"dtype={wanted} (checkpoint: {arch.dtype}): half the memory traffic")
    return wanted


def choose_max_model_len(asked: int | str | None, arch: ModelArch, usual: int | None = None) -> int:
    """The length limit before memory is known. Raises ConfigError above the model's own.

    `usual`: what the model's authors cut texts to.
    """
    limit = arch.max_model_len
    if asked is None or isinstance(asked, str):
        return limit if usual is None else min(limit, usual)
    if asked > limit:
        raise ConfigError(
            f"max_model_len={asked} is above the model's limit of {limit} positions; lower it, or "
            "extend the rotary embedding with "
            '--hf-overrides \'{"rope_scaling": {"rope_type": "yarn", "factor": ...}}\''
        )
    return asked


@dataclass(frozen=True)
class Budget:
    """The scheduler's limits per step."""

    max_num_batched_tokens: int
    max_num_seqs: int


def choose_budget(
    options: EngineOptions,
    platform: PlatformInfo,
    usage: Usage,
    max_model_len: int,
    notes: Notes,
) -> Budget:
    """Tokens and requests per step, by device and use; vLLM's defaults.

    Raises ConfigError for limits that contradict each other.
    """
    default_tokens, default_seqs = _default_budget(platform, usage)
    tokens = options.max_num_batched_tokens
    if tokens is None:
        tokens = default_tokens
        if not options.enable_chunked_prefill and tokens < max_model_len:
            notes.add(
                f"max_num_batched_tokens={max_model_len} (max_model_len): without chunked prefill "
                "the longest prompt must fit in one step"
            )
            tokens = max_model_len
    elif not options.enable_chunked_prefill and tokens < max_model_len:
        raise ConfigError(
            f"max_num_batched_tokens={tokens} is below max_model_len={max_model_len} without "
            f"chunked prefill; set --max-num-batched-tokens {max_model_len}, lower "
            "--max-model-len, or enable chunked prefill"
        )
    seqs = options.max_num_seqs
    if seqs is None:
        seqs = min(default_seqs, tokens)
        if seqs < default_seqs:
            notes.add(
                f"max_num_seqs={seqs} (max_num_batched_tokens): each running request needs a "
                "token of the step"
            )
    elif seqs > tokens:
        raise ConfigError(
            f"max_num_seqs={seqs} is above max_num_batched_tokens={tokens}: each running request "
            f"needs a token of the step; set --max-num-batched-tokens {seqs} or more, or lower "
            "--max-num-seqs"
        )
    return Budget(tokens, seqs)


def _default_budget(platform: PlatformInfo, usage: Usage) -> tuple[int, int]:
    server = usage == "server"
    if platform.device_type == "cpu":
        return (2048, 128) if server else (4096, 256)
    if platform.total_memory >= LARGE_GPU_BYTES and "a100" not in platform.device_name.lower():
        return (8192, 1024) if server else (16384, 1024)
    return (2048, 256) if server else (8192, 256)


def choose_compilation_mode(options: EngineOptions) -> CompilationMode:
    """The mode asked for by name or number, else what the optimization level stands for."""
    asked = options.compilation_mode
    if asked is None:
        return "VLLM_COMPILE" if options.optimization_level else "NONE"
    names: tuple[CompilationMode, ...] = get_args(CompilationMode)
    return names[int(asked)] if asked.isdecimal() else names[names.index(asked)]


def choose_itl_target(options: EngineOptions, platform: PlatformInfo, usage: Usage) -> float:
    """Milliseconds, 0 for none: prompts that must be computed whole can't be cut to a target.

    Raises ConfigError where both are asked for.
    """
    asked = options.itl_target_ms
    if asked and not options.enable_chunked_prefill:
        raise ConfigError(
            f"itl_target_ms={asked:g} cuts prompts into parts, which --no-enable-chunked-prefill "
            "rules out; leave out one of them"
        )
    if asked is not None:
        return asked
    served = usage == "server" and platform.device_type == "cuda"
    return DEFAULT_ITL_TARGET_MS if served and options.enable_chunked_prefill else 0.0


def choose_graph_sizes(
    options: EngineOptions, platform: PlatformInfo, budget: Budget
) -> tuple[int, ...]:
    """Token counts to keep CUDA graphs for, ascending; none on a CPU or when eager.

    Raises ConfigError for sizes no step can have.
    """
    if platform.device_type != "cuda" or options.enforce_eager or options.optimization_level == 0:
        return ()
    largest = options.max_cudagraph_capture_size
    sizes = options.cudagraph_capture_sizes
    if sizes is not None:
        limit = budget.max_num_batched_tokens if largest is None else largest
        name = "max_num_batched_tokens" if largest is None else "max_cudagraph_capture_size"
        if max(sizes, default=0) > limit:
            raise ConfigError(
                f"cudagraph_capture_sizes has {max(sizes)}, above {name}={limit}; leave it out "
                f"or raise --{name.replace('_', '-')}"
            )
        return tuple(sorted(set(sizes)))
    if largest is None:
        largest = min(budget.max_num_seqs, MAX_GRAPH_TOKENS)
    return graph_sizes_up_to(min(largest, budget.max_num_batched_tokens))


def graph_sizes_up_to(largest: int) -> tuple[int, ...]:
    """1, 2, 4, 8, then steps of an eighth to a quarter of the size, `largest` always among them."""
    sizes = [size for size in (1, 2, 4) if size < largest]
    size = 8
    while size < largest:
        sizes.append(size)
        size += max(8, next_power_of_2(size + 1) // 8)
    return (*sizes, largest)


def _version(platform: PlatformInfo) -> str:
    return ".".join(map(str, platform.capability or ()))
