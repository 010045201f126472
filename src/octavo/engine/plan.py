"""The memory plan: a byte for every part of an engine, before any weight is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from octavo.config.kv_specs import kv_cache_specs
from octavo.config.octavo_config import OctavoConfig
from octavo.core.kv.planning import group_layers, max_model_len_that_fits, request_blocks
from octavo.engine import byte_counts
from octavo.engine.byte_counts import Header
from octavo.engine.remedies import first_remedy
from octavo.types.errors import ConfigError
from octavo.types.kv_spec import KVCacheConfig
from octavo.types.platform_info import PlatformInfo
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

# Largest CUDA graphs, in tokens, that are tried in turn where there is no room for all.
_GRAPH_LIMITS = (64, 8, 0)
GRAPHS, TABLES = "CUDA graphs", "sampling tables"

CPU_KV_SHARE = 4  # a CPU's KV cache takes one part in this many of the free memory,
CPU_KV_LIMIT = 4 << 30  # at most these bytes,
CPU_KV_REFILLS = 2  # and at most this many times what all requests could fill.


@dataclass(frozen=True)
class PlanLine:
    """One part of the engine. Lines with `of` detail the line of that name."""

    name: str
    num_bytes: int
    note: str = ""
    of: str | None = None


@dataclass(frozen=True)
class Plan:
    """Where the memory of one device goes.

    `config` is the one planned for, with max_model_len lowered if it was to be fitted.
    """

    config: OctavoConfig
    kv_cache_config: KVCacheConfig
    lines: tuple[PlanLine, ...]  # all parts but the KV cache
    limit_bytes: int  # what all parts may take together
    limit_note: str
    kv_note: str

    @property
    def kv_cache_bytes(self) -> int:
        """Bytes of the KV cache, the null block included."""
        return self.kv_cache_config.total_bytes

    @property
    def num_blocks(self) -> int:
        """Blocks of the KV cache, the null block included."""
        return self.kv_cache_config.num_blocks

    @property
    def bytes_per_token(self) -> int:
        """KV bytes of one token (that no sliding window has passed)."""
        return _bytes_per_token(self.kv_cache_config)

    @property
    def blocks_per_request(self) -> int:
        """Blocks of a request of max_model_len tokens."""
        return _request_blocks(self.config, self.kv_cache_config)

    @property
    def max_concurrency(self) -> float:
        """Requests of max_model_len tokens that fit at once; an encoder keeps none of them."""
        if not self.blocks_per_request:
            return float(self.config.scheduler.max_num_seqs)
        return (self.num_blocks - 1) / self.blocks_per_request

    @property
    def used_bytes(self) -> int:
        """Bytes of all parts together."""
        return sum(line.num_bytes for line in self.lines if line.of is None) + self.kv_cache_bytes

    @property
    def later_bytes(self) -> int:
        """Of a GPU, what is allocated after the KV cache: graphs and sampling tables."""
        if self.config.device.device_type == "cpu":
            return 0
        return sum(line.num_bytes for line in self.lines if line.name in (GRAPHS, TABLES))

    @property
    def headroom_bytes(self) -> int:
        """Bytes of the limit that nothing is planned for."""
        return self.limit_bytes - self.used_bytes

    def table(self) -> str:
        """The plan as text."""
        kv = PlanLine("KV cache", self.kv_cache_bytes, self.kv_note)
        rows = [_row(line) for line in (*self.lines, kv)]
        rows.append(_row(PlanLine("headroom", self.headroom_bytes)))
        rows.append(_row(PlanLine("limit", self.limit_bytes, self.limit_note)))
        model, device = self.config.model, self.config.device
        title = f"{model.model} ({model.arch.architecture}) in {model.dtype} on "
        return "\n".join([title + device.device_name, *rows, self._capacity()])

    def _capacity(self) -> str:
        groups, max_model_len = self.kv_cache_config.groups, self.config.model.max_model_len
        if not groups:
            return f"Texts of up to {max_model_len:,} tokens leave nothing in a cache."
        usable = self.num_blocks - 1
        return (
            f"The cache holds {usable:,} blocks, {usable * groups[0].spec.block_size:,} tokens at "
            f"{self.bytes_per_token:,} bytes: {self.max_concurrency:.1f} requests of "
            f"{max_model_len:,} tokens."
        )

    def dump(self) -> dict[str, Any]:
        """The plan as plain data."""
        parts = {(f"{line.of}: " if line.of else "") + line.name: line for line in self.lines}
        return {
            "bytes": {name: line.num_bytes for name, line in parts.items()},
            "kv_cache_bytes": self.kv_cache_bytes,
            "headroom_bytes": self.headroom_bytes,
            "limit_bytes": self.limit_bytes,
            "num_blocks": self.num_blocks,
            "block_bytes": self.kv_cache_config.block_bytes,
            "bytes_per_token": self.bytes_per_token,
            "max_model_len": self.config.model.max_model_len,
            "max_concurrency": round(self.max_concurrency, 3),
        }


def make_plan(
    config: OctavoConfig,
    headers: Mapping[str, Header] | None = None,
    platform: PlatformInfo | None = None,
) -> Plan:
    """Plan a device's memory; touches no device and reads no weight.

    `headers` are the checkpoint's tensor headers (None: shapes follow from the architecture),
    `platform` the machine (by default the one configured for). Raises ConfigError that names a
    change that fits when not even one request of max_model_len does.

    The KV cache gets, on a GPU, what the other parts leave of gpu_memory_utilization and of the
    memory that is free now; on a CPU a quarter of the free memory, at most 4 GiB and at most twice
    what max_num_seqs requests could fill. kv_cache_memory_bytes replaces either,
    num_gpu_blocks_override both.
    """
    machine = platform or config.device
    lines = _lines(config, headers)
    fixed = sum(line.num_bytes for line in lines if line.of is None)
    limit, limit_note = _limit(config, machine)
    kv_bytes, kv_note = _kv_budget(config, machine, limit - fixed)
    kv_config = _kv_config(config, kv_bytes)
    if config.model.fit_max_model_len:
        config = _fit_length(config, kv_config)
    needed = _request_blocks(config, kv_config) + 1
    room = max(0, limit - fixed)
    if kv_config.num_blocks < needed or kv_config.total_bytes > room:
        fewer = _with_fewer_graphs(config, headers, machine)
        if fewer is not None:
            return make_plan(fewer, headers, machine)
        raise _refuse(config, headers, machine, kv_config, fixed, limit)
    blocks = f"{kv_config.num_blocks:,} blocks of {kv_config.block_bytes:,} bytes"
    return Plan(config, kv_config, lines, limit, limit_note, f"{blocks}; {kv_note}")


def _lines(config: OctavoConfig, headers: Mapping[str, Header] | None) -> tuple[PlanLine, ...]:
    weights = byte_counts.weight_bytes(config, headers)
    scheduler = config.scheduler
    groups = group_layers(kv_cache_specs(config))
    sizes = config.compilation.cudagraph_capture_sizes
    lines = [
        PlanLine(
            "weights",
            sum(weights.values()),
            "from the architecture" if headers is None else f"{len(headers)} tensors",
        ),
        *(PlanLine(part, size, of="weights") for part, size in weights.items() if size),
        PlanLine(
            "activations",
            byte_counts.activation_bytes(config),
            f"a step of {scheduler.max_num_batched_tokens:,} tokens",
        ),
        PlanLine("attention", byte_counts.attention_bytes(config), _work_space(config)),
        *(() if config.model.pooler else _sampling_lines(config)),
        PlanLine(
            "request table",
            byte_counts.table_bytes(config, groups),
            f"{scheduler.num_slots:,} slots",
        ),
        PlanLine(
            "rotary table",
            byte_counts.rotary_bytes(config),
            f"{config.model.max_model_len:,} positions",
        ),
    ]
    if sizes:
        note = f"{len(sizes)} sizes up to {max(sizes)}; estimated"
        lines.append(PlanLine(GRAPHS, byte_counts.graph_bytes(config), note))
    blas = byte_counts.blas_bytes(config)
    if blas:
        lines.append(PlanLine("cuBLAS", blas, "work space"))
    context = byte_counts.context_bytes(config)
    if context:
        lines.append(PlanLine("CUDA context", context, "estimated"))
    return tuple(lines)


def _work_space(config: OctavoConfig) -> str:
    if config.device.device_type == "cpu" and not config.model.arch.is_encoder:
        return "work space of PyTorch's way; the C kernels need next to none"
    return "work space"


def _sampling_lines(config: OctavoConfig) -> tuple[PlanLine, ...]:
    scheduler, vocab_size = config.scheduler, config.model.vocab_size
    return (
        PlanLine(
            "logits",
            byte_counts.logits_bytes(config),
            f"{scheduler.max_num_seqs:,} rows of {vocab_size:,}",
        ),
        PlanLine(
            TABLES,
            byte_counts.sampling_bytes(config),
            "if every request uses penalties and allowed tokens",
        ),
    )


def _limit(config: OctavoConfig, machine: PlatformInfo) -> tuple[int, str]:
    """(bytes all parts may take together, where the figure comes from)."""
    free = machine.free_memory
    if machine.device_type == "cpu":
        return free, f"free of {_human(machine.total_memory)}"
    if config.cache.kv_cache_memory_bytes is not None:
        return free, f"free of {_human(machine.total_memory)}"
    share = config.cache.gpu_memory_utilization
    wanted = int(share * machine.total_memory)
    if free < wanted:
        return free, (
            f"free now, below {share:g} of {_human(machine.total_memory)}: other processes hold "
            "the rest"
        )
    return wanted, f"{share:g} of {_human(machine.total_memory)}"


def _kv_budget(config: OctavoConfig, machine: PlatformInfo, room: int) -> tuple[int, str]:
    """(bytes for the KV cache, the rule they come from)."""
    if config.cache.num_gpu_blocks_override is not None:
        return 0, "--num-gpu-blocks-override"
    asked = config.cache.kv_cache_memory_bytes
    if asked is not None:
        return asked, "--kv-cache-memory-bytes"
    room = max(0, room)
    if machine.device_type == "cuda":
        return room, "what is left"
    useful = CPU_KV_REFILLS * config.scheduler.max_num_seqs
    single = _kv_config(config, 0)
    fillable = (useful * _request_blocks(config, single) + 1) * single.block_bytes
    rules = {
        "what is left": room,
        "a quarter of the free memory": machine.free_memory // CPU_KV_SHARE,
        "4 GiB, the default's limit on a CPU": CPU_KV_LIMIT,
        f"what {useful:,} requests fill": fillable,
    }
    rule = min(rules, key=lambda name: rules[name])
    return rules[rule], rule


def _kv_config(config: OctavoConfig, kv_bytes: int) -> KVCacheConfig:
    groups = group_layers(kv_cache_specs(config))
    if not groups:
        return KVCacheConfig(num_blocks=1, groups=())
    block_bytes = KVCacheConfig(num_blocks=1, groups=groups).block_bytes
    blocks = config.cache.num_gpu_blocks_override or kv_bytes // block_bytes
    return KVCacheConfig(num_blocks=blocks, groups=groups)


def _request_blocks(config: OctavoConfig, kv_config: KVCacheConfig) -> int:
    return request_blocks(kv_config, config.model.max_model_len, config.scheduler.max_tokens_ahead)


def _bytes_per_token(kv_config: KVCacheConfig) -> int:
    return sum(kv_config.block_bytes // group.spec.block_size for group in kv_config.groups)


def _longest(config: OctavoConfig, kv_config: KVCacheConfig) -> int:
    """The longest request that fits the cache, at most max_model_len; 0: none."""
    return max_model_len_that_fits(
        kv_cache_specs(config),
        kv_config.total_bytes,
        max_tokens_ahead=config.scheduler.max_tokens_ahead,
        limit=config.model.max_model_len,
    )


def _fit_length(config: OctavoConfig, kv_config: KVCacheConfig) -> OctavoConfig:
    longest = _longest(config, kv_config)
    limit = config.model.max_model_len
    if longest == limit or longest == 0:
        return config
    reason = f"max_model_len={longest}: the longest that fits the KV cache (the model: {limit})"
    logger.info(reason)
    return config.with_max_model_len(longest, reason)


def _with_fewer_graphs(
    config: OctavoConfig, headers: Mapping[str, Header] | None, machine: PlatformInfo
) -> OctavoConfig | None:
    """The configuration with as many CUDA graphs as leave room for a request, if any do."""
    sizes = config.compilation.cudagraph_capture_sizes
    for limit in _GRAPH_LIMITS:
        kept = tuple(size for size in sizes if size <= limit)
        if len(kept) == len(sizes):
            continue
        reason = f"cudagraph_capture_sizes={list(kept)}: the device has no room for larger graphs"
        compilation = dataclasses.replace(
            config.compilation,
            cudagraph_capture_sizes=kept,
            max_cudagraph_capture_size=max(kept, default=0),
        )
        fewer = dataclasses.replace(config, compilation=compilation, notes=(*config.notes, reason))
        if _fits(fewer, headers, machine):
            return fewer
    return None


def _refuse(
    config: OctavoConfig,
    headers: Mapping[str, Header] | None,
    machine: PlatformInfo,
    kv_config: KVCacheConfig,
    fixed: int,
    limit: int,
) -> ConfigError:
    """The error for a plan that does not fit, with a change that was tried and does."""
    needed = (_request_blocks(config, kv_config) + 1) * kv_config.block_bytes
    room = max(0, limit - fixed)
    if kv_config.total_bytes > room >= needed:
        return _refuse_excess(config, kv_config, room)
    had = msgspec.structs.replace(
        kv_config, num_blocks=min(kv_config.num_blocks, room // kv_config.block_bytes)
    )
    remedy = first_remedy(
        config,
        fits=lambda changed: _fits(changed, headers, machine),
        longest=_longest(config, had),
        needed_kv_bytes=needed,
        block_bytes=kv_config.block_bytes,
        needed_share=(fixed + needed) / machine.total_memory,
    )
    return ConfigError(
        f"one request of max_model_len={config.model.max_model_len} needs {_human(needed)} of KV "
        f"cache; {_human(had.total_bytes)} can be had beside the {_human(fixed)} of the model, "
        f"within {_human(limit)}; {remedy}"
    )


def _refuse_excess(config: OctavoConfig, kv_config: KVCacheConfig, room: int) -> ConfigError:
    """The error for a cache that the user made larger than what is left."""
    if config.cache.num_gpu_blocks_override is not None:
        remedy = f"--num-gpu-blocks-override {room // kv_config.block_bytes}"
    else:
        remedy = f"--kv-cache-memory-bytes {room}"
    return ConfigError(
        f"the KV cache asked for takes {_human(kv_config.total_bytes)}, and {_human(room)} is "
        f"left; use {remedy}"
    )


def _fits(
    config: OctavoConfig, headers: Mapping[str, Header] | None, machine: PlatformInfo
) -> bool:
    fixed = sum(line.num_bytes for line in _lines(config, headers) if line.of is None)
    room = _limit(config, machine)[0] - fixed
    kv_config = _kv_config(config, _kv_budget(config, machine, room)[0])
    enough = kv_config.num_blocks > _request_blocks(config, kv_config)
    return enough and kv_config.total_bytes <= room


def _row(line: PlanLine) -> str:
    name = f"    {line.name}" if line.of else f"  {line.name}"
    return f"{name:<24}{_human(line.num_bytes):>12}  {line.note}".rstrip()


def _human(num_bytes: int) -> str:
    if abs(num_bytes) >= 1 << 30:
        return f"{num_bytes / 2**30:.2f} GiB"
    if abs(num_bytes) >= 1 << 20:
        return f"{num_bytes / 2**20:.1f} MiB"
    return f"{num_bytes / 2**10:.1f} KiB"
