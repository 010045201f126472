"""How many bytes each part of a configured engine takes, from shapes alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Protocol

from octavo.config.architectures import ModelArch
from octavo.config.octavo_config import OctavoConfig
from octavo.types.kv_spec import DTYPE_BYTES, KVCacheGroup
from octavo.utils.misc import cdiv, next_power_of_2, round_up

EMBEDDING = "token embedding"
ATTENTION = "attention layers"
MLP = "MLP layers"
NORMS = "norms"
OUTPUT = "output layer"
PARTS = (EMBEDDING, ATTENTION, MLP, NORMS, OUTPUT)

_INT32 = 4
_FLOAT32 = 4

# float32 rows of vocabulary size that exist at once while sampling: the logits, the copy that
# penalties and truncation edit, and the noise of the draw. On a CPU, where every stage is a tensor
# operation: the logits, those whose logprobs are wanted as they were, the rows to truncate, their
# probabilities.
LOGITS_COPIES = 3
CPU_LOGITS_COPIES = 4

# Logprobs are computed for so many rows at a time. Beside two copies of the logits each of those
# then takes log-probabilities, sort keys of twice their size and the flags they are ranked by.
CPU_LOGPROB_ROWS = 64
CPU_LOGPROB_COPIES = 4.25

# Rows of the vocabulary are padded to a multiple of this.
VOCAB_MULTIPLE = 64

# Limits of what attention on a CPU holds at a time, and how far its buffers may grow ahead of use.
CPU_GATHER_BYTES = 64 << 20
CPU_SCORES_BYTES = 64 << 20
CPU_BUFFER_GROWTH = 1.5

# Shares into which a GPU's multiprocessors split the keys of a decode step, and query vectors of a
# KV head that a share's partial result holds.
DECODE_SHARES = 256
DECODE_QUERIES = 16

# What CUDA takes beside tensors. Measured on an H200 (driver 580, torch 2.11): the context 621 MiB,
# with cuBLAS and a few loaded kernels 685.
CUDA_CONTEXT_BYTES = 768 << 20

# Driver memory of CUDA graphs, measured on the same: 72 MiB with the first graph of 400 launches,
# then 2 KiB a launch; kernels with many arguments take more.
FIRST_GRAPH_BYTES = 72 << 20
GRAPH_NODE_BYTES = 4 << 10
LAUNCHES_PER_LAYER = 12


class Header(Protocol):
    """What is needed of a tensor's header in a checkpoint."""

    @property
    def shape(self) -> tuple[int, ...]: ...


def weight_bytes(
    config: OctavoConfig, headers: Mapping[str, Header] | None = None
) -> dict[str, int]:
    """Part of the model -> bytes on the device, in the compute dtype.

    `headers` maps tensor names of the Hugging Face layout to their headers; without them (dummy
    weights, files not here) the shapes follow from the architecture.
    """
    arch = config.model.arch
    if headers is None:
        shapes = dict(tensor_shapes(arch))
    else:
        shapes = {name: header.shape for name, header in headers.items()}
    if arch.tie_word_embeddings:
        shapes.pop("lm_head.weight", None)
    sizes = dict.fromkeys(PARTS, 0)
    for name, shape in shapes.items():
        part = _part(name)
        if part in (EMBEDDING, OUTPUT):
            shape = (round_up(shape[0], VOCAB_MULTIPLE), *shape[1:])
        if part is not None:
            sizes[part] += math.prod(shape) * DTYPE_BYTES[config.model.dtype]
    if arch.tie_word_embeddings and _repacks(config):
        sizes[OUTPUT] = sizes[EMBEDDING]
    return sizes


def _repacks(config: OctavoConfig) -> bool:
    """Whether products use a repacked copy of their weight, which a tied one then exists beside."""
    return config.device.device_type == "cpu" and config.model.dtype == "float32"


def _part(name: str) -> str | None:
    """The part a tensor belongs to; None for tables that are computed, not loaded."""
    if name.endswith("rotary_emb.inv_freq"):
        return None
    if name.startswith("lm_head."):
        return OUTPUT
    if "embed_tokens" in name:
        return EMBEDDING
    if "norm" in name:
        return NORMS
    return ATTENTION if ".self_attn." in name else MLP


def tensor_shapes(arch: ModelArch) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a checkpoint's tensors, in the Hugging Face layout."""
    hidden, inner, vocab = arch.hidden_size, arch.intermediate_size, arch.vocab_size
    q_size, kv_size = arch.num_heads * arch.head_size, arch.num_kv_heads * arch.head_size
    linears = {
        "self_attn.q_proj": (q_size, hidden, arch.qkv_bias),
        "self_attn.k_proj": (kv_size, hidden, arch.qkv_bias),
        "self_attn.v_proj": (kv_size, hidden, arch.qkv_bias),
        "self_attn.o_proj": (hidden, q_size, arch.o_bias),
        "mlp.gate_proj": (inner, hidden, arch.mlp_bias),
        "mlp.up_proj": (inner, hidden, arch.mlp_bias),
        "mlp.down_proj": (hidden, inner, arch.mlp_bias),
    }
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    if arch.qk_norm:
        norms |= {"self_attn.q_norm": arch.head_size, "self_attn.k_norm": arch.head_size}
    yield "model.embed_tokens.weight", (vocab, hidden)
    for index in range(arch.num_layers):
        prefix = f"model.layers.{index}"
        for name, (rows, columns, bias) in linears.items():
            yield f"{prefix}.{name}.weight", (rows, columns)
            if bias:
                yield f"{prefix}.{name}.bias", (rows,)
        for name, size in norms.items():
            yield f"{prefix}.{name}.weight", (size,)
    yield "model.norm.weight", (hidden,)
    if not arch.tie_word_embeddings:
        yield "lm_head.weight", (vocab, hidden)


def activation_bytes(config: OctavoConfig, num_tokens: int | None = None) -> int:
    """Peak of a forward pass over `num_tokens` (a full step by default), without logits.

    The residual stream, its normalized copy and a layer's input live through the layer. Beside
    them the MLP holds gate and up and their product, then what is left of those and its output;
    attention, which has no need of the copy, holds packed q, k and v, q in the order of the batch
    and the output twice.
    """
    arch = config.model.arch
    tokens = config.scheduler.max_num_batched_tokens if num_tokens is None else num_tokens
    q_size, kv_size = arch.num_heads * arch.head_size, arch.num_kv_heads * arch.head_size
    hidden, inner = arch.hidden_size, arch.intermediate_size
    width = max(3 * hidden + 3 * inner, 4 * hidden + inner, 2 * hidden + 4 * q_size + 2 * kv_size)
    return tokens * width * DTYPE_BYTES[config.model.dtype]


def attention_bytes(config: OctavoConfig) -> int:
    """Work space of attention.

    A GPU keeps one partial result per row and KV head (and per share of the work that the
    multiprocessors split). A CPU gathers keys and values of like rows, in parts of limited size
    but at least one request, and holds the scores of a decode step and the mask of a prefill.
    """
    arch, scheduler = config.model.arch, config.scheduler
    if config.device.device_type == "cuda":
        parts = scheduler.max_num_seqs + DECODE_SHARES
        return parts * arch.num_kv_heads * DECODE_QUERIES * arch.head_size * _FLOAT32
    longest = round_up(config.model.max_model_len, config.cache.block_size)
    key_bytes = 2 * arch.num_kv_heads * arch.head_size * _FLOAT32
    every = int(CPU_BUFFER_GROWTH * scheduler.max_num_seqs * longest)
    keys = min(max(CPU_GATHER_BYTES // key_bytes, longest), every)
    mask = min(CPU_SCORES_BYTES, scheduler.max_num_batched_tokens * longest * _FLOAT32)
    return keys * (key_bytes + arch.num_heads * _FLOAT32) + mask


def sampling_bytes(config: OctavoConfig) -> int:
    """Tables of token counts, should every request use penalties.

    One that has ended keeps its row as long as a step in flight has its slot.
    """
    return next_power_of_2(config.scheduler.num_slots) * config.model.vocab_size * _INT32


def logits_bytes(config: OctavoConfig) -> int:
    """Peak of sampling with every request in one step; on a CPU with all that can be asked for."""
    rows, row_bytes = config.scheduler.max_num_seqs, config.model.vocab_size * _FLOAT32
    if config.device.device_type != "cpu":
        return LOGITS_COPIES * rows * row_bytes
    scored = 2 * rows + CPU_LOGPROB_COPIES * min(rows, CPU_LOGPROB_ROWS)
    return round(max(CPU_LOGITS_COPIES * rows, scored) * row_bytes)


def table_bytes(config: OctavoConfig, groups: tuple[KVCacheGroup, ...]) -> int:
    """The request table: block tables and counters per slot (and one for padding)."""
    slots = config.scheduler.num_slots + 1
    counters = 2
    blocks = sum(cdiv(config.model.max_model_len, group.spec.block_size) for group in groups)
    return slots * (counters + blocks) * _INT32


def rotary_bytes(config: OctavoConfig) -> int:
    """The table of cosines and sines, one row per position."""
    arch = config.model.arch
    return config.model.max_model_len * arch.head_size * _FLOAT32


def graph_bytes(config: OctavoConfig) -> int:
    """CUDA graphs: activations and logits of the largest, which all share, and driver memory."""
    sizes = config.compilation.cudagraph_capture_sizes
    if not sizes:
        return 0
    nodes = len(sizes) * config.model.arch.num_layers * LAUNCHES_PER_LAYER
    logits = LOGITS_COPIES * max(sizes) * config.model.vocab_size * _FLOAT32
    driver = FIRST_GRAPH_BYTES + nodes * GRAPH_NODE_BYTES
    return activation_bytes(config, max(sizes)) + logits + driver


def context_bytes(config: OctavoConfig) -> int:
    """What the device's runtime takes by itself."""
    return CUDA_CONTEXT_BYTES if config.device.device_type == "cuda" else 0
