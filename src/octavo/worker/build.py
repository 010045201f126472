"""The composition root: the one place that reads configuration and picks the parts of a runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from octavo.attention.interface import AttentionParams, AttentionSetup
from octavo.attention.registry import select_backend
from octavo.checkpoints.locate import find_model
from octavo.config.octavo_config import OctavoConfig
from octavo.distributed.group import SingleRank
from octavo.kernels.input_kernels import INPUT_KERNELS
from octavo.kernels.op import kernels_for
from octavo.layers.quantization.interface import QUANT_METHODS
from octavo.model_loader.loader import load_model
from octavo.models.context import ModelContext
from octavo.models.interfaces import CausalLM
from octavo.platforms.interface import Platform
from octavo.sampling.kernel_sets import SAMPLING_KERNELS
from octavo.sampling.processors import load_processors
from octavo.sampling.sampler import Sampler
from octavo.sampling.state import SamplingState
from octavo.types.kv_spec import KVCacheConfig, KVCacheSpec, SlidingWindowSpec
from octavo.worker.attn_groups import AttentionGroups
from octavo.worker.block_tables import BlockTables
from octavo.worker.device_state import DeviceState
from octavo.worker.device_step import DeviceStep
from octavo.worker.gpu_model_runner import GPUModelRunner
from octavo.worker.graphs import CudaGraphRunner, EagerRunner, GraphSizes
from octavo.worker.heads.generation import GenerationHead
from octavo.worker.heads.prompt_logprobs import PromptLogprobs
from octavo.worker.input_batch import InputBuffers
from octavo.worker.input_builder import InputBuilder
from octavo.worker.kv_cache import TORCH_DTYPES, allocate_kv_cache
from octavo.worker.parts import GraphRunner, StepHook
from octavo.worker.request_table import RequestTable

# Rows of the plain decode graphs that most traffic begins with.
GRAPHS_AT_START = (1, 8, 32, 64, 128, 256)
# Shapes of mixed steps worth a graph: above, the device takes longer than launching does.
MIXED_GRAPH_ROWS = (16, 64, 256)
MIXED_GRAPH_TOKENS = (32, 64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024)


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest step, from the scheduler's limits."""

    max_rows: int
    max_tokens: int
    num_slots: int
    max_model_len: int

    @classmethod
    def of(cls, config: OctavoConfig) -> Limits:
        """A step pads its rows to a graph's size, which may exceed max_num_seqs."""
        graph_sizes = config.compilation.cudagraph_capture_sizes
        scheduler = config.scheduler
        rows = max(scheduler.max_num_seqs, *graph_sizes, 1)
        return cls(
            max_rows=rows,
            max_tokens=max(scheduler.max_num_batched_tokens, rows),
            num_slots=scheduler.num_slots,
            max_model_len=config.model.max_model_len,
        )


def build_model(config: OctavoConfig, platform: Platform) -> CausalLM:
    """The model with its weights, ready to run."""
    options = config.model
    files = find_model(options.model, options.revision, config.load.download_dir)
    context = ModelContext(
        dtype=TORCH_DTYPES[options.dtype],
        device=platform.device,
        kernels=kernels_for(platform.device.type),
        group=SingleRank(),
        quantization=QUANT_METHODS.get(options.quantization or "none")(),
        arch=options.arch,
        max_model_len=options.max_model_len,
        hf_config=files.config(),
    )
    return load_model(context, files, config.load.load_format)


def build_runner(
    config: OctavoConfig,
    model: CausalLM,
    kv_config: KVCacheConfig,
    platform: Platform,
    *,
    graphs: bool,
) -> GPUModelRunner:
    """A runner for `model` over a cache of `kv_config`; without `graphs` it runs eagerly."""
    limits = Limits.of(config)
    state = DeviceState(
        RequestTable.regions(limits.num_slots)
        | BlockTables.regions(kv_config, limits.num_slots, limits.max_model_len),
        platform,
    )
    table = RequestTable(limits.num_slots, state)
    block_tables = BlockTables(kv_config, limits.num_slots, limits.max_model_len, state)
    inputs = InputBuilder(
        table,
        block_tables,
        state,
        InputBuffers(
            limits.max_rows, limits.max_tokens, config.scheduler.max_concurrent_steps, platform
        ),
        INPUT_KERNELS.get(platform.device.type)(),
        platform,
    )
    sampling = SamplingState(
        limits.num_slots + 1,
        config.model.vocab_size,
        platform.device,
        max_model_len=limits.max_model_len,
        kernels=SAMPLING_KERNELS.get(platform.device.type)(),
        logits_processors=load_processors(config.model.logits_processors),
        logprobs_mode=config.model.logprobs_mode,
    )
    prompt_logprobs = PromptLogprobs(sampling.kernels, model.compute_logits)
    hooks: Sequence[StepHook] = ()
    step = DeviceStep(
        inputs=inputs,
        attention=_attention_groups(config, kv_config, block_tables, limits, platform),
        model=model,
        head=GenerationHead(model, Sampler(), sampling, prompt_logprobs),
        hooks=hooks,
    )
    return GPUModelRunner(
        table=table,
        block_tables=block_tables,
        slot_states=(sampling, prompt_logprobs),
        graphs=_graph_runner(config, step, limits, platform) if graphs else EagerRunner(step),
        platform=platform,
    )


def _graph_runner(
    config: OctavoConfig, step: DeviceStep, limits: Limits, platform: Platform
) -> GraphRunner:
    decode_rows = config.compilation.cudagraph_capture_sizes
    if not decode_rows:
        return EagerRunner(step)
    sizes = GraphSizes(
        decode_rows=decode_rows,
        mixed_rows=[rows for rows in MIXED_GRAPH_ROWS if rows <= limits.max_rows],
        mixed_tokens=[tokens for tokens in MIXED_GRAPH_TOKENS if tokens <= limits.max_tokens],
        at_start=[rows for rows in GRAPHS_AT_START if rows in decode_rows],
    )
    return CudaGraphRunner(step, sizes, limits.max_model_len, platform)


def _attention_groups(
    config: OctavoConfig,
    kv_config: KVCacheConfig,
    block_tables: BlockTables,
    limits: Limits,
    platform: Platform,
) -> AttentionGroups:
    backends: list[Any] = []
    for group in kv_config.groups:
        setup = AttentionSetup(
            params=_attention_params(config, group.spec),
            block_size=group.spec.block_size,
            dtype=TORCH_DTYPES[config.model.dtype],
            kv_dtype=TORCH_DTYPES[group.spec.dtype],
            device=platform.device,
            max_num_rows=limits.max_rows,
            max_num_tokens=limits.max_tokens,
            max_model_len=limits.max_model_len,
            capability=config.device.capability,
        )
        backends.append(select_backend(setup, config.attention.backend)(setup))
    return AttentionGroups(backends, allocate_kv_cache(kv_config, platform), block_tables)


def _attention_params(config: OctavoConfig, spec: KVCacheSpec) -> AttentionParams:
    arch = config.model.arch
    return AttentionParams(
        scale=arch.head_size**-0.5,
        num_heads=arch.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_size=spec.head_size,
        sliding_window=spec.window if isinstance(spec, SlidingWindowSpec) else None,
    )
