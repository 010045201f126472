"""OctavoConfig: the frozen sum of every section, as the whole engine sees it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec

from octavo.config.cache import CacheConfig
from octavo.config.load import LoadConfig
from octavo.config.model import ModelConfig
from octavo.config.parallel import ParallelConfig
from octavo.config.runtime import (
    AttentionConfig,
    CompilationConfig,
    KernelConfig,
    ObservabilityConfig,
)
from octavo.config.scheduler import SchedulerConfig
from octavo.config.structured_outputs import StructuredOutputsConfig
from octavo.types.platform_info import PlatformInfo

# What the forward pass and its graphs do not depend on. Everything else enters the hash, so that
# a new field can at worst make a cache miss, never a stale hit.
_OUTSIDE_GRAPH = {
    "model": frozenset(
        {
            "model",
            "tokenizer",
            "revision",
            "tokenizer_revision",
            "served_model_name",
            "seed",
            "trust_remote_code",
            "config_format",
            "hf_overrides",
            "generation_config",
            "override_generation_config",
            "max_logprobs",
            "logprobs_mode",
            "logits_processors",
            "skip_tokenizer_init",
            "chat_template",
            "fit_max_model_len",
            "eos_token_ids",
            "generation_defaults",
        }
    ),
    "load": frozenset({"load_format", "download_dir", "ignore_patterns"}),
    "cache": frozenset(
        {
            "gpu_memory_utilization",
            "kv_cache_memory_bytes",
            "num_gpu_blocks_override",
            "enable_prefix_caching",
            "prefix_caching_hash_algo",
        }
    ),
    "scheduler": frozenset(
        {
            "long_prefill_token_threshold",
            "scheduling_policy",
            "itl_target_ms",
            "enable_chunked_prefill",
            "max_waiting_requests",
            "stream_interval",
        }
    ),
    "structured_outputs": frozenset(
        {
            "structured_outputs_backend",
            "grammar_compile_timeout",
            "disable_any_whitespace",
            "disable_additional_properties",
            "enable_in_reasoning",
            "finish_within_limit",
            "jump_forward",
        }
    ),
    "parallel": frozenset({"data_parallel_size", "distributed_executor_backend"}),
    "observability": frozenset(
        {"disable_log_stats", "enable_log_requests", "metrics_prefix", "otlp_traces_endpoint"}
    ),
    "device": frozenset({"total_memory", "free_memory", "num_devices", "num_cpus"}),
}


@dataclass(frozen=True, kw_only=True)
class OctavoConfig:
    """Everything that was decided before the engine starts. Nothing changes it afterwards."""

    model: ModelConfig
    load: LoadConfig
    cache: CacheConfig
    scheduler: SchedulerConfig
    parallel: ParallelConfig
    attention: AttentionConfig
    kernel: KernelConfig
    compilation: CompilationConfig
    observability: ObservabilityConfig
    device: PlatformInfo
    structured_outputs: StructuredOutputsConfig = field(default_factory=StructuredOutputsConfig)
    notes: tuple[str, ...] = ()  # every choice made for the user, with its reason

    @property
    def shares_prefixes(self) -> bool:
        """Whether running requests may read a common prefix together: one that they share."""
        alike = self.attention.disable_cascade_attn or self.kernel.batch_invariant
        return self.cache.enable_prefix_caching and not alike

    def dump(self) -> dict[str, Any]:
        """Plain data (dicts, lists, strings, numbers), ready for JSON or YAML."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return plain

    def compute_hash(self) -> str:
        """16 hexadecimal digits that name the computation: equal across runs and processes.

        Keys caches of compiled kernels and graphs.
        """
        plain = self.dump()
        del plain["notes"]
        relevant = {
            section: {k: v for k, v in values.items() if k not in _outside(section)}
            for section, values in plain.items()
        }
        text = json.dumps(relevant, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def with_max_model_len(self, max_model_len: int, reason: str) -> OctavoConfig:
        """A copy with a lower length limit and a note that says why."""
        model = dataclasses.replace(self.model, max_model_len=max_model_len)
        return dataclasses.replace(self, model=model, notes=(*self.notes, reason))


def default_sampling_params(config: OctavoConfig) -> dict[str, Any]:
    """SamplingParams fields that apply where a request says nothing."""
    return dict(config.model.generation_defaults)


def section_values(cls: type, source: object, **resolved: Any) -> dict[str, Any]:
    """Keyword values for a section: the resolved ones, the others as `source` has them."""
    names = [f.name for f in fields(cls)]
    return {name: resolved[name] if name in resolved else getattr(source, name) for name in names}


def _outside(section: str) -> frozenset[str]:
    return _OUTSIDE_GRAPH.get(section, frozenset())


def outside_graph() -> Mapping[str, frozenset[str]]:
    """Section -> fields that leave the hash unchanged."""
    return dict(_OUTSIDE_GRAPH)
