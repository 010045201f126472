"""resolve(): options + model files + machine facts -> OctavoConfig, a pure function."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.checkpoints.sentence_transformers import SentenceFiles
from octavo.config import compat, hf
from octavo.config.architectures import TRANSFORMERS_MODEL, ModelArch, encoder_arch, model_arch
from octavo.config.cache import CacheConfig
from octavo.config.code import CAUSAL_LM, code_reference
from octavo.config.defaults import (
    Notes,
    Usage,
    choose_budget,
    choose_compilation_mode,
    choose_dtype,
    choose_graph_sizes,
    choose_itl_target,
    choose_max_model_len,
)
from octavo.config.engine_options import EngineOptions
from octavo.config.generation import eos_token_ids, sampling_defaults
from octavo.config.load import LoadConfig
from octavo.config.model import ModelConfig
from octavo.config.octavo_config import OctavoConfig, section_values
from octavo.config.parallel import ParallelConfig
from octavo.config.pooler import PoolerConfig
from octavo.config.pooling import (
    PoolingArchitecture,
    choose_pooler,
    pooling_architecture,
    sentence_length,
)
from octavo.config.runtime import (
    AttentionConfig,
    CompilationConfig,
    KernelConfig,
    ObservabilityConfig,
)
from octavo.config.scheduler import SchedulerConfig
from octavo.config.structured_outputs import StructuredOutputsConfig
from octavo.config.token_scores import LOGIT_SCORE
from octavo.types.errors import ConfigError
from octavo.types.platform_info import PlatformInfo

_PLUGIN = re.compile(r"[\w.]+:[\w.]+")
_EXECUTORS = ("uni",)
_PLANS_ON_HOST = ("flashinfer", "torch_sdpa")  # attention backends
_MIN_GPU_BLOCK_SIZE = 16  # rows of the smallest tile of the matrix instructions


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What the model's files say."""

    hf_config: Mapping[str, Any]  # config.json
    generation_config: Mapping[str, Any] = field(default_factory=dict)  # generation_config.json
    kind: str = "safetensors"  # of weights, as a load_format
    sentence: SentenceFiles | None = None  # of a Sentence Transformers model
    token_ids: Mapping[str, int] = field(default_factory=dict)  # of tokens that scores go by
    code: Path | None = None  # the folder whose Python files may be run


def resolve(
    options: EngineOptions, platform: PlatformInfo, usage: Usage = "llm", *, facts: ModelFacts
) -> OctavoConfig:
    """Decide everything. Raises ConfigError with the field, the value and the remedy.

    The result depends on the arguments only. With --max-model-len auto the length is the model's
    own limit and `model.fit_max_model_len` is set: the memory plan lowers it.
    """
    notes = Notes()
    hf_config = hf.merge(facts.hf_config, options.hf_overrides)
    pooling = pooling_architecture(
        hf_config,
        options.runner,
        options.convert,
        has_sentence_files=facts.sentence is not None,
        scores_by_logits=facts.sentence is not None and facts.sentence.has(LOGIT_SCORE),
    )
    arch = _arch(hf_config, options, pooling, facts.code)
    if arch.architecture == TRANSFORMERS_MODEL:
        what = "as asked" if options.model_impl == "transformers" else "octavo has no class for it"
        names = ", ".join(map(str, hf_config["architectures"]))
        notes.add(f"{names} runs through the Transformers backend: {what}")
    dtype = choose_dtype(options.dtype, arch, platform, notes)
    asked = compat.Asked(
        options, platform, arch, dtype, _own_quantization(hf_config), pooling is not None
    )
    compat.check(asked)
    _check_values(options, platform)
    _check_packing(options, facts)
    if arch.is_encoder:
        # A text whose tokens all see each other is computed at once, and nothing of it is kept.
        options = dataclasses.replace(
            options,
            enable_chunked_prefill=False,
            enable_prefix_caching=False,
            long_prefill_token_threshold=0,
            itl_target_ms=None,
        )
    pooler = None
    if pooling is not None:
        pooler = choose_pooler(
            pooling, hf_config, arch, facts.sentence, options.pooler_config, facts.token_ids
        )
        notes.add(_pooling_note(pooling, pooler))
    usual_len = None if pooling is None else sentence_length(facts.sentence)
    max_model_len = choose_max_model_len(options.max_model_len, arch, usual_len)
    # Of an encoder every step is made of whole texts: small ones stay in the processor's cache.
    budget_usage = "server" if arch.is_encoder else usage
    budget = choose_budget(options, platform, budget_usage, max_model_len, notes)
    graph_sizes = choose_graph_sizes(options, platform, budget)
    if arch.architecture == TRANSFORMERS_MODEL and options.cudagraph_capture_sizes is None:
        graph_sizes = ()  # transformers' code may wait for the device, which a graph can't
    if pooling is not None:
        graph_sizes = ()  # prompts are of any length, and there are no decode steps
    if graph_sizes and options.attention_backend in _PLANS_ON_HOST:
        graph_sizes = ()
        notes.add(f"no CUDA graphs: {options.attention_backend} plans every step on the host")
    file_defaults = {} if options.generation_config == "vllm" else facts.generation_config
    model = section_values(
        ModelConfig,
        options,
        served_model_name=options.served_model_name or (options.model,),
        dtype=dtype,
        max_model_len=max_model_len,
        logits_processors=options.logits_processors or (),
        arch=arch,
        fit_max_model_len=options.max_model_len == "auto",
        eos_token_ids=eos_token_ids(arch.eos_token_ids, facts.generation_config),
        generation_defaults=sampling_defaults(
            file_defaults, options.override_generation_config, notes
        ),
        pooler=pooler,
    )
    scheduler = section_values(
        SchedulerConfig,
        options,
        max_num_batched_tokens=budget.max_num_batched_tokens,
        max_num_seqs=budget.max_num_seqs,
        itl_target_ms=choose_itl_target(options, platform, usage),
    )
    compilation = section_values(
        CompilationConfig,
        options,
        compilation_mode=choose_compilation_mode(options),
        cudagraph_capture_sizes=graph_sizes,
        max_cudagraph_capture_size=max(graph_sizes, default=0),
    )
    if options.trust_remote_code:
        notes.add(_code_note(hf_config, arch, facts.code))
    return OctavoConfig(
        model=ModelConfig(**model),
        load=LoadConfig(
            **section_values(LoadConfig, options, load_format=_load_format(options, facts))
        ),
        cache=CacheConfig(**section_values(CacheConfig, options, kv_cache_dtype=dtype)),
        scheduler=SchedulerConfig(**scheduler),
        parallel=ParallelConfig(**section_values(ParallelConfig, options)),
        attention=AttentionConfig(**section_values(AttentionConfig, options)),
        kernel=KernelConfig(**section_values(KernelConfig, options)),
        compilation=CompilationConfig(**compilation),
        observability=ObservabilityConfig(**section_values(ObservabilityConfig, options)),
        structured_outputs=StructuredOutputsConfig(
            **section_values(StructuredOutputsConfig, options)
        ),
        device=platform,
        notes=tuple(notes.lines),
    )


def _arch(
    hf_config: Mapping[str, Any],
    options: EngineOptions,
    pooling: PoolingArchitecture | None,
    code: Path | None,
) -> ModelArch:
    if pooling is None:
        return model_arch(hf_config, options.model_impl, code)
    if options.model_impl == "transformers":
        raise ConfigError(
            "model_impl='transformers' runs models that generate text; leave it out to pool"
        )
    if pooling.is_encoder:
        return encoder_arch(hf_config, pooling.body)
    return model_arch({**hf_config, "architectures": [pooling.body]}, "octavo")


def _code_note(hf_config: Mapping[str, Any], arch: ModelArch, code: Path | None) -> str:
    reference = code_reference(hf_config, CAUSAL_LM)
    if code is None or reference is None or arch.architecture != TRANSFORMERS_MODEL:
        return "trust_remote_code: no class of the model's own is needed, and none is run"
    return f"trust_remote_code: runs the model's own {reference} from {code}"


def _pooling_note(pooling: PoolingArchitecture, pooler: PoolerConfig) -> str:
    how = pooler.tok_pooling_type if pooler.head == "token_classify" else pooler.seq_pooling_type
    form = "an encoder" if pooling.is_encoder else "a decoder"
    return f"runner=pooling: {form} whose states are pooled ({how}) to {pooler.tasks[0]}"


def _own_quantization(hf_config: Mapping[str, Any]) -> str | None:
    quantized = hf_config.get("quantization_config")
    if not quantized:
        return None
    return str(quantized.get("quant_method", "unknown"))


def _load_format(options: EngineOptions, facts: ModelFacts) -> str:
    asked = options.load_format
    if asked not in ("auto", "hf", "dummy", facts.kind):
        raise ConfigError(
            f"load_format={asked!r}, but {options.model!r} holds {facts.kind}; use --load-format "
            "auto"
        )
    return "dummy" if asked == "dummy" else facts.kind


def _check_packing(options: EngineOptions, facts: ModelFacts) -> None:
    """Whether there is anything to pack."""
    asked, source = options.quantization, _load_format(options, facts)
    if asked == "gguf" and source != "gguf":
        raise ConfigError(
            f"quantization='gguf' keeps the blocks of a GGUF file, and the weights of "
            f"{options.model!r} come as {source}; use --quantization int8 or int4"
        )
    if asked is not None and source == "sharded_state":
        raise ConfigError(
            f"quantization={asked!r}: weights saved as sharded_state are loaded as they are; use "
            "the checkpoint that they were made of, or leave out --quantization"
        )


def _check_values(options: EngineOptions, platform: PlatformInfo) -> None:
    size = options.block_size
    if size & (size - 1):
        raise ConfigError(f"block_size={size} is not a power of two; use --block-size 16")
    if platform.device_type == "cuda" and size < _MIN_GPU_BLOCK_SIZE:
        raise ConfigError(
            f"block_size={size} is below {_MIN_GPU_BLOCK_SIZE}, the rows of a GPU tile; use "
            f"--block-size {_MIN_GPU_BLOCK_SIZE}"
        )
    executor = options.distributed_executor_backend
    if executor not in _EXECUTORS and not _PLUGIN.fullmatch(executor):
        raise ConfigError(
            f"distributed_executor_backend={executor!r}: expected {', '.join(_EXECUTORS)} or "
            "module:Class"
        )
    for name in options.logits_processors or ():
        if not _PLUGIN.fullmatch(name):
            raise ConfigError(f"logits_processors has {name!r}: expected module:Class")
