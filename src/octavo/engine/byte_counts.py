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
# penalties and truncation edit, and the noise of the draw.
LOGITS_COPIES = 3

# Rows of the vocabulary are padded to a multiple of this.
VOCAB_MULTIPLE = 64

# Limits of what attention on a CPU holds at a time.
CPU_GATHER_BYTES = 64 << 20
CPU_SCORES_BYTES = 64 << 20

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

    The residual stream and its normalized copy live through a layer; beside them either attention
    (packed q, k, v, the rotated q, the output) or the MLP (gate and up, their product).
    """
    arch = config.model.arch
    tokens = config.scheduler.max_num_batched_tokens if num_tokens is None else num_tokens
    q_size, kv_size = arch.num_heads * arch.head_size, arch.num_kv_heads * arch.head_size
    attention = 3 * q_size + 2 * kv_size
    mlp = 3 * arch.intermediate_size
    width = 2 * arch.hidden_size + max(attention, mlp)
    return tokens * width * DTYPE_BYTES[config.model.dtype]


def attention_bytes(config: OctavoConfig) -> int:
    """Work space of attention.

    A GPU keeps one partial result per row and KV head (and per share of the work that the
    multiprocessors split). A CPU gathers keys and values of like rows, in parts of limited size
    but at least one request, and holds their scores and mask.
    """
    arch, scheduler = config.model.arch, config.scheduler
    if config.device.device_type == "cuda":
        parts = scheduler.max_num_seqs + DECODE_SHARES
        return parts * arch.num_kv_heads * DECODE_QUERIES * arch.head_size * _FLOAT32
    longest = config.model.max_model_len
    key_bytes = 2 * arch.num_kv_heads * arch.head_size * _FLOAT32
    every = scheduler.max_num_seqs * longest * key_bytes
    gathered = min(max(CPU_GATHER_BYTES, longest * key_bytes), every)
    scores = min(CPU_SCORES_BYTES, scheduler.max_num_batched_tokens * longest * _FLOAT32)
    return gathered + scores


def sampling_bytes(config: OctavoConfig) -> int:
    """Tables of token counts, should every request use penalties."""
    return next_power_of_2(config.scheduler.max_num_seqs) * config.model.vocab_size * _INT32


def logits_bytes(config: OctavoConfig) -> int:
    """Peak of sampling with every request in one step."""
    rows = config.scheduler.max_num_seqs
    return LOGITS_COPIES * rows * config.model.vocab_size * _FLOAT32


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
