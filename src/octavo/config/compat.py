"""Features that can't be used, alone or together, with the reasons: the one table of them."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from octavo.config.architectures import ModelArch
from octavo.config.defaults import choose_compilation_mode
from octavo.config.engine_options import EngineOptions
from octavo.types.errors import ConfigError
from octavo.types.platform_info import PlatformInfo


@dataclass(frozen=True)
class Asked:
    """What features are recognized by."""

    options: EngineOptions
    platform: PlatformInfo
    arch: ModelArch
    dtype: str  # resolved
    quantization: str | None  # the checkpoint's own
    pools: bool = False


class Feature(enum.Enum):
    """Something a configuration may use; the value is how it is called in messages."""

    CPU = "a CPU"
    GPU = "a GPU"
    EAGER = "--enforce-eager or -O0"
    GRAPH_SIZES = "CUDA graph sizes"
    COMPILED = "torch.compile"
    BATCH_INVARIANT = "--batch-invariant"
    TRITON_ATTENTION = "--attention-backend triton"
    WHOLE_PREFILL = "--no-enable-chunked-prefill"
    PREFILL_THRESHOLD = "--long-prefill-token-threshold"
    PREFIX_CACHING = "prefix caching"
    ASYNC_SCHEDULING = "asynchronous scheduling"
    PRIORITY = "priority scheduling"
    LOGITS_PROCESSORS = "--logits-processors"
    SLIDING_WINDOW = "sliding-window layers"
    OTHER_KV_DTYPE = "a KV cache dtype other than the model's"
    QUANTIZED_CHECKPOINT = "a quantized checkpoint"
    PACKED_WEIGHTS = "--quantization"
    TENSOR_PARALLEL = "--tensor-parallel-size above 1"
    PIPELINE_PARALLEL = "--pipeline-parallel-size above 1"
    DATA_PARALLEL = "--data-parallel-size above 1"
    POOLING = "a pooling model"


@dataclass(frozen=True)
class Refusal:
    """Why a feature, or a pair of features, is refused, and what to do instead."""

    features: frozenset[Feature]
    reason: str
    remedy: str


_RECOGNIZE: dict[Feature, Callable[[Asked], bool]] = {
    Feature.CPU: lambda a: a.platform.device_type == "cpu",
    Feature.GPU: lambda a: a.platform.device_type == "cuda",
    Feature.EAGER: lambda a: a.options.enforce_eager or a.options.optimization_level == 0,
    Feature.GRAPH_SIZES: lambda a: (
        a.options.cudagraph_capture_sizes is not None
        or a.options.max_cudagraph_capture_size is not None
    ),
    Feature.COMPILED: lambda a: choose_compilation_mode(a.options) != "NONE",
    Feature.BATCH_INVARIANT: lambda a: a.options.batch_invariant,
    Feature.TRITON_ATTENTION: lambda a: a.options.attention_backend == "triton",
    Feature.WHOLE_PREFILL: lambda a: not a.options.enable_chunked_prefill,
    Feature.PREFILL_THRESHOLD: lambda a: a.options.long_prefill_token_threshold > 0,
    Feature.PREFIX_CACHING: lambda a: a.options.enable_prefix_caching,
    Feature.ASYNC_SCHEDULING: lambda a: a.options.async_scheduling,
    Feature.PRIORITY: lambda a: a.options.scheduling_policy == "priority",
    Feature.LOGITS_PROCESSORS: lambda a: bool(a.options.logits_processors),
    Feature.SLIDING_WINDOW: lambda a: a.arch.sliding_window is not None,
    Feature.OTHER_KV_DTYPE: lambda a: a.options.kv_cache_dtype not in ("auto", a.dtype),
    Feature.QUANTIZED_CHECKPOINT: lambda a: a.quantization is not None,
    Feature.PACKED_WEIGHTS: lambda a: a.options.quantization is not None,
    Feature.TENSOR_PARALLEL: lambda a: a.options.tensor_parallel_size > 1,
    Feature.PIPELINE_PARALLEL: lambda a: a.options.pipeline_parallel_size > 1,
    Feature.DATA_PARALLEL: lambda a: a.options.data_parallel_size > 1,
    Feature.POOLING: lambda a: a.pools,
}


def _refuse(*features: Feature, reason: str, remedy: str) -> Refusal:
    return Refusal(frozenset(features), reason, remedy)


REFUSALS = (
    _refuse(
        Feature.TENSOR_PARALLEL,
        reason="one engine drives one device in this version",
        remedy="set --tensor-parallel-size 1",
    ),
    _refuse(
        Feature.PIPELINE_PARALLEL,
        reason="one engine drives one device in this version",
        remedy="set --pipeline-parallel-size 1",
    ),
    _refuse(
        Feature.DATA_PARALLEL,
        reason="one server runs one engine in this version",
        remedy="start one server per device, or set --data-parallel-size 1",
    ),
    _refuse(
        Feature.QUANTIZED_CHECKPOINT,
        reason="no kernel of this version multiplies packed weights of safetensors files",
        remedy="use the unquantized checkpoint (on a CPU with --quantization int8 or int4), or a "
        "GGUF file",
    ),
    _refuse(
        Feature.GPU,
        Feature.PACKED_WEIGHTS,
        reason="the kernels for packed weights run on CPUs only",
        remedy="leave out --quantization; the weights of a GGUF file are then unpacked on load",
    ),
    _refuse(
        Feature.COMPILED,
        Feature.PACKED_WEIGHTS,
        reason="a compiled graph takes weights as tensors, and packed ones are none",
        remedy="leave out one of them",
    ),
    _refuse(
        Feature.OTHER_KV_DTYPE,
        reason="attention reads keys and values in the dtype of the queries",
        remedy="set --kv-cache-dtype auto, or --dtype to the same",
    ),
    _refuse(
        Feature.CPU,
        Feature.TRITON_ATTENTION,
        reason="Triton kernels run on CUDA devices only",
        remedy="leave out --attention-backend",
    ),
    _refuse(
        Feature.CPU,
        Feature.GRAPH_SIZES,
        reason="CUDA graphs exist on CUDA devices only",
        remedy="leave out --cudagraph-capture-sizes and --max-cudagraph-capture-size",
    ),
    _refuse(
        Feature.EAGER,
        Feature.GRAPH_SIZES,
        reason="eager mode captures no graphs",
        remedy="leave out --enforce-eager or the graph sizes",
    ),
    _refuse(
        Feature.EAGER,
        Feature.COMPILED,
        reason="eager mode runs the model as it is written",
        remedy="leave out --enforce-eager and -O0, or the compilation mode",
    ),
    _refuse(
        Feature.COMPILED,
        Feature.BATCH_INVARIANT,
        reason="the compiler chooses the order of sums by the number of rows",
        remedy="leave out one of them",
    ),
    _refuse(
        Feature.WHOLE_PREFILL,
        Feature.PREFILL_THRESHOLD,
        reason="the threshold splits long prompts into chunks",
        remedy="leave out one of them",
    ),
    _refuse(
        Feature.POOLING,
        Feature.LOGITS_PROCESSORS,
        reason="it chooses no tokens",
        remedy="leave out --logits-processors, or set --runner generate",
    ),
    _refuse(
        Feature.POOLING,
        Feature.COMPILED,
        reason="the compiler takes models that generate text",
        remedy="leave out the compilation mode, or set --runner generate",
    ),
    _refuse(
        Feature.POOLING,
        Feature.BATCH_INVARIANT,
        reason="texts of like length are computed together, and their sums depend on the company",
        remedy="leave out --batch-invariant, or set --runner generate",
    ),
)


def active_features(asked: Asked) -> frozenset[Feature]:
    """The features a configuration uses."""
    return frozenset(feature for feature in Feature if _RECOGNIZE[feature](asked))


def check(asked: Asked) -> None:
    """Raise ConfigError for the first refused feature or pair, with its reason and remedy."""
    active = active_features(asked)
    for refusal in REFUSALS:
        if refusal.features <= active:
            raise ConfigError(f"{_names(refusal)} is refused: {refusal.reason}; {refusal.remedy}")


def refusal_of(first: Feature, second: Feature) -> Refusal | None:
    """The refusal that a pair meets, or for a feature with itself, that it meets alone."""
    pair = frozenset({first, second})
    for refusal in REFUSALS:
        if refusal.features <= pair and (len(refusal.features) == 1 or refusal.features == pair):
            return refusal
    return None


def allowed_pairs() -> list[tuple[Feature, Feature]]:
    """Every pair of features that may be used together, in the order of the enum."""
    features = list(Feature)
    return [
        (first, second)
        for i, first in enumerate(features)
        for second in features[i + 1 :]
        if refusal_of(first, second) is None
    ]


def matrix_markdown() -> str:
    """The table as Markdown: a triangle of yes or a note's number, then the notes."""
    features = [feature for feature in Feature if refusal_of(feature, feature) is None]
    letters = [chr(ord("A") + i) for i in range(len(features))]
    lines = [f"| | feature | {' | '.join(letters)} |", f"|---|---|{'---|' * len(features)}"]
    for i, first in enumerate(features):
        row = [_cell(first, second) for second in features[:i]] + [""] * (len(features) - i)
        lines.append(f"| {letters[i]} | {first.value} | {' | '.join(row)} |")
    notes = [f"{number}. {_sentence(refusal)}" for number, refusal in enumerate(REFUSALS, 1)]
    return "\n".join([*lines, "", *notes])


def matrix_text() -> str:
    """The table for a terminal: what is refused with what, then what can be used with anything."""
    free = [f.value for f in Feature if not any(f in r.features for r in REFUSALS)]
    lines = ["Refused:", *(f"  {_sentence(refusal)}" for refusal in REFUSALS)]
    return "\n".join([*lines, "Allowed with one another and with all others:", *_indent(free)])


def _sentence(refusal: Refusal) -> str:
    return f"{_names(refusal)}: {refusal.reason}; {refusal.remedy}."


def _names(refusal: Refusal) -> str:
    return " with ".join(f.value for f in Feature if f in refusal.features)


def _indent(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _cell(first: Feature, second: Feature) -> str:
    refusal = refusal_of(first, second)
    return "yes" if refusal is None else f"no ({REFUSALS.index(refusal) + 1})"
