"""The composition root: the one place that reads configuration and picks the parts of a runner."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from octavo.attention.interface import AttentionParams, AttentionSetup
from octavo.attention.registry import select_backend
from octavo.config import hf
from octavo.config.files import code_folder, model_files
from octavo.config.graph_shapes import graphs_at_start, mixed_rows, mixed_tokens
from octavo.config.octavo_config import OctavoConfig
from octavo.distributed.group import SingleRank
from octavo.kernels.input_kernels import INPUT_KERNELS
from octavo.kernels.op import kernels_for
from octavo.layers.quantization.interface import QUANT_METHODS
from octavo.model_loader import sharded_state
from octavo.model_loader.dense import load_dense_layers
from octavo.model_loader.loader import MappedReader, Reader, fill_model, load_into
from octavo.model_loader.stream import StreamingReader
from octavo.models import registry
from octavo.models.context import ModelContext
from octavo.models.interfaces import CausalLM, Model, PoolingModel
from octavo.models.pooled import PooledModel
from octavo.platforms.interface import PLATFORMS, Platform
from octavo.sampling.kernel_sets import SAMPLING_KERNELS
from octavo.sampling.processors import load_processors
from octavo.sampling.sampler import Sampler
from octavo.sampling.state import SamplingState
from octavo.types.kv_spec import KVCacheConfig, KVCacheSpec, SlidingWindowSpec
from octavo.worker.attn_groups import AttentionGroups
from octavo.worker.block_tables import BlockTables
from octavo.worker.compile import model_compiler
from octavo.worker.device_state import DeviceState
from octavo.worker.device_step import DeviceStep
from octavo.worker.encoder_rows import EncoderRows
from octavo.worker.gpu_model_runner import GPUModelRunner
from octavo.worker.graphs import CudaGraphRunner, EagerRunner, GraphSizes
from octavo.worker.heads.generation import GenerationHead
from octavo.worker.heads.pooling import PoolingHead
from octavo.worker.heads.prompt_logprobs import PromptLogprobs
from octavo.worker.hidden_states import HiddenStatesTap, NoHiddenStates
from octavo.worker.input_batch import InputBuffers
from octavo.worker.input_builder import InputBuilder
from octavo.worker.kv_cache import TORCH_DTYPES, allocate_kv_cache
from octavo.worker.parts import GraphRunner, Head, LayerTap, SlotState, StepAttention, StepHook
from octavo.worker.request_table import RequestTable

# Threads that read weights: by then the device's link is busy.
MAX_READERS = 8


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


def build_model(config: OctavoConfig, platform: Platform) -> Model:
    """The model, its weights not yet loaded."""
    options = config.model
    device_type = platform.device.type
    compiler = model_compiler(config.compilation.compilation_mode, device_type)
    kernels = kernels_for(device_type, batch_invariant=config.kernel.batch_invariant)
    files = model_files(config)
    context = ModelContext(
        dtype=TORCH_DTYPES[options.dtype],
        device=platform.device,
        kernels=compiler.kernels(kernels),
        group=SingleRank(),
        quantization=QUANT_METHODS.get(options.quantization or "none")(),
        arch=options.arch,
        max_model_len=options.max_model_len,
        hf_config=hf.merge(files.config(), options.hf_overrides),
        code=code_folder(files),
    )
    if options.pooler is not None:
        return registry.build_pooling_model(context, options.pooler)
    return compiler.model(registry.build_model(context))


def load_weights(config: OctavoConfig, model: Model, platform: Platform) -> None:
    """Fill the model and make it ready to run."""
    reader: Reader = MappedReader()
    if platform.device.type != "cpu":
        reader = StreamingReader(platform, min(config.device.num_cpus, MAX_READERS))
    files = model_files(config)
    load_into(model, files, config.load.load_format, reader)
    if isinstance(model, PooledModel) and config.load.load_format != "dummy":
        load_dense_layers(model, files.path)


def save_sharded_state(config: OctavoConfig, folder: Path, max_size: int) -> None:
    """Write the weights as this engine holds them, and all else that a start from `folder` needs.

    They are loaded a second time, into RAM: those in use have been repacked for the kernels.
    """
    files = model_files(config)
    eager = dataclasses.replace(config.compilation, compilation_mode="NONE")
    unpacked = dataclasses.replace(config.model, quantization=None)
    plain = dataclasses.replace(config, compilation=eager, model=unpacked)
    model = build_model(plain, PLATFORMS.get("cpu")(config.device))
    fill_model(model, files, config.load.load_format, MappedReader())
    folder.mkdir(parents=True, exist_ok=True)
    sharded_state.save_sharded_state(model, folder, max_size=max_size)
    sharded_state.save_small_files(files, folder, config.model.dtype)


def build_runner(
    config: OctavoConfig,
    model: Model,
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
    head: Head
    slot_states: tuple[SlotState, ...]
    tap: LayerTap = NoHiddenStates()
    if config.model.pooler is not None:
        head = PoolingHead(cast(PoolingModel, model), config.model.pooler)
        slot_states = (head,)
    else:
        head, tap, slot_states = _generation(config, cast(CausalLM, model), limits, platform)
    hooks: Sequence[StepHook] = ()
    step = DeviceStep(
        inputs=inputs,
        attention=_attention_groups(config, kv_config, block_tables, limits, platform),
        model=model,
        head=head,
        hooks=hooks,
        states=tap,
    )
    return GPUModelRunner(
        table=table,
        block_tables=block_tables,
        slot_states=slot_states,
        graphs=_graph_runner(config, step, limits, platform) if graphs else EagerRunner(step),
        platform=platform,
    )


def _generation(
    config: OctavoConfig, model: CausalLM, limits: Limits, platform: Platform
) -> tuple[GenerationHead, LayerTap, tuple[SlotState, ...]]:
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
    shape = (1, config.model.arch.hidden_size)
    hidden = torch.zeros(shape, dtype=TORCH_DTYPES[config.model.dtype], device=platform.device)
    head = GenerationHead(model, Sampler(), sampling, prompt_logprobs, hidden)
    tap = HiddenStatesTap(model, config.model.arch.num_layers)
    return head, tap, (sampling, prompt_logprobs, tap)


def _graph_runner(
    config: OctavoConfig, step: DeviceStep, limits: Limits, platform: Platform
) -> GraphRunner:
    decode_rows = config.compilation.cudagraph_capture_sizes
    if not decode_rows:
        return EagerRunner(step)
    sizes = GraphSizes(
        decode_rows=decode_rows,
        mixed_rows=mixed_rows(limits.max_rows),
        mixed_tokens=mixed_tokens(limits.max_tokens),
        at_start=graphs_at_start(decode_rows),
    )
    return CudaGraphRunner(step, sizes, limits.max_model_len, platform)


def _attention_groups(
    config: OctavoConfig,
    kv_config: KVCacheConfig,
    block_tables: BlockTables,
    limits: Limits,
    platform: Platform,
) -> StepAttention:
    if config.model.arch.is_encoder:
        dtype = TORCH_DTYPES[config.model.dtype]
        return EncoderRows(config.model.arch.num_heads, dtype, platform)
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
            batch_invariant=config.kernel.batch_invariant,
        )
        backends.append(select_backend(setup, config.attention.backend)(setup))
    return AttentionGroups(
        backends,
        allocate_kv_cache(kv_config, platform),
        block_tables,
        shares_prefixes=config.shares_prefixes,
    )


def _attention_params(config: OctavoConfig, spec: KVCacheSpec) -> AttentionParams:
    arch = config.model.arch
    return AttentionParams(
        scale=arch.attention_scale,
        num_heads=arch.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_size=spec.head_size,
        sliding_window=spec.window if isinstance(spec, SlidingWindowSpec) else None,
        soft_cap=arch.attention_soft_cap,
        alibi_slopes=torch.ones(arch.num_heads) if arch.alibi else None,
    )
