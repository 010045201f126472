"""How many bytes each part of a configured engine takes, from shapes alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Protocol

from octavo.config.architectures import SLIDING_ATTENTION, ModelArch
from octavo.config.graph_shapes import mixed_shapes
from octavo.config.octavo_config import OctavoConfig
from octavo.engine.packed_bytes import packed_bytes
from octavo.types.kv_spec import DTYPE_BYTES, KVCacheGroup
from octavo.utils.misc import cdiv, next_power_of_2, round_up

EMBEDDING = "token embedding"
ATTENTION = "attention layers"
MLP = "MLP layers"
NORMS = "norms"
OUTPUT = "output layer"
PARTS = (EMBEDDING, ATTENTION, MLP, NORMS, OUTPUT)

# How the families' checkpoints call them.
_COMPUTED = ("rotary_emb.inv_freq", ".attn.bias", ".attention.bias", ".masked_bias")
_OUTPUTS = ("lm_head.", "embed_out.", "output.")
_EMBEDDINGS = ("embed_tokens", "embed_in", "embed_positions", "embeddings.", "wte.", "wpe.")
_ATTENTIONS = (".self_attn.", ".attn.", ".attention.", ".self_attention.")

_INT32 = 4
_FLOAT32 = 4

# float32 rows of vocabulary size that exist at once while sampling: the logits, the copy that
# penalties and biases edit, and the rows that plug-ins are given; top-k, top-p and the draw need
# none. On a CPU, where every stage is a tensor operation: the logits, those whose logprobs are
# wanted as they were, the rows to truncate, their probabilities.
LOGITS_COPIES = 3
CPU_LOGITS_COPIES = 4

# Logprobs are computed for so many rows at a time. Beside two copies of the logits each of those
# then takes log-probabilities, keys that order like the logits, and sort keys of twice their size.
CPU_LOGPROB_ROWS = 64
CPU_LOGPROB_COPIES = 4

# Rows of the vocabulary are padded to a multiple of this.
VOCAB_MULTIPLE = 64

# Limits of what attention on a CPU holds at a time, and how far its buffers may grow ahead of use.
CPU_GATHER_BYTES = 64 << 20
CPU_SCORES_BYTES = 64 << 20
CPU_BUFFER_GROWTH = 1.5

# Of an encoder: how far texts of a batch are padded, and elements of a batch's scores.
ENCODER_STRETCH = 1.25
ENCODER_SCORES = 16 << 20

# Shares into which a GPU's multiprocessors split the keys of a decode step, and query vectors of a
# KV head that a share's partial result holds.
DECODE_SHARES = 256
DECODE_QUERIES = 16
# Keys of a tile of a decode step, and numbers that describe one beside its blocks.
DECODE_TILE = 64
DECODE_RECORD = 4

# cuBLAS' work space on Hopper, for the stream of the steps and for the one that graphs are
# captured on; torch's default.
BLAS_BYTES = 2 * (32 << 20)

# What CUDA takes beside tensors. Measured on an H200 (driver 580, torch 2.11): the context 621 MiB,
# with cuBLAS and a few loaded kernels 685.
CUDA_CONTEXT_BYTES = 768 << 20

# Driver memory of CUDA graphs, measured on the same: 72 MiB with the first graph of 400 launches,
# then 2 KiB a launch; kernels with many arguments take more.
FIRST_GRAPH_BYTES = 72 << 20
GRAPH_NODE_BYTES = 4 << 10
LAUNCHES_PER_LAYER = 12
DECODE_VARIANTS = 3  # of sampling, that a graph can hold


class Header(Protocol):
    """What is needed of a tensor's header in a checkpoint."""

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...


def weight_bytes(
    config: OctavoConfig, headers: Mapping[str, Header] | None = None
) -> dict[str, int]:
    """Part of the model -> bytes on the device, in the compute dtype or packed.

    `headers` maps tensor names of the Hugging Face layout to their headers; without them (dummy
    weights, files not here) the shapes follow from the architecture.
    """
    arch = config.model.arch
    dtypes: dict[str, str] = {}
    if headers is None:
        shapes = dict(tensor_shapes(arch))
    else:
        shapes = {name: header.shape for name, header in headers.items()}
        dtypes = {name: header.dtype for name, header in headers.items()}
    if arch.tie_word_embeddings:
        shapes.pop("lm_head.weight", None)
    sizes = dict.fromkeys(PARTS, 0)
    repacked = _repacks(config)
    for name, shape in shapes.items():
        part = _part(name)
        if part is None:
            continue
        is_vocabulary = part in (EMBEDDING, OUTPUT)
        packed = packed_bytes(
            config.model.quantization, name, shape, dtypes.get(name), is_vocabulary=is_vocabulary
        )
        if packed is not None:
            sizes[part] += packed
            repacked = repacked and part != EMBEDDING
            continue
        # An embedding that might have been packed holds no padding.
        if part == OUTPUT or (part == EMBEDDING and config.model.quantization is None):
            shape = (round_up(shape[0], VOCAB_MULTIPLE), *shape[1:])
        sizes[part] += math.prod(shape) * DTYPE_BYTES[config.model.dtype]
    if config.model.pooler is not None:
        sizes[OUTPUT] = 0  # what the checkpoint has of it is not loaded
    elif arch.tie_word_embeddings and repacked:
        sizes[OUTPUT] = sizes[EMBEDDING]
    return sizes


def _repacks(config: OctavoConfig) -> bool:
    """Whether products use a repacked copy of their weight, which a tied one then exists beside."""
    return config.device.device_type == "cpu" and config.model.dtype == "float32"


def _part(name: str) -> str | None:
    """The part a tensor belongs to; None for tables and masks that are computed, not loaded."""
    if name.endswith(_COMPUTED):
        return None
    if name.startswith(_OUTPUTS):
        return OUTPUT
    if any(part in name for part in _EMBEDDINGS):
        return EMBEDDING
    if "norm" in name or ".ln_" in name:
        return NORMS
    return ATTENTION if any(part in name for part in _ATTENTIONS) else MLP


def tensor_shapes(arch: ModelArch) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a checkpoint's tensors, in the Hugging Face layout."""
    hidden, inner, vocab = arch.hidden_size, arch.intermediate_size, arch.vocab_size
    q_size, kv_size = arch.num_heads * arch.head_size, arch.num_kv_heads * arch.head_size
    linears = {
        "self_attn.q_proj": (q_size, hidden, arch.qkv_bias),
        "self_attn.k_proj": (kv_size, hidden, arch.qkv_bias),
        "self_attn.v_proj": (kv_size, hidden, arch.qkv_bias),
        "self_attn.o_proj": (hidden, q_size, arch.o_bias),
        **({"mlp.gate_proj": (inner, hidden, arch.mlp_bias)} if arch.gated_mlp else {}),
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
    attention = 2 * hidden + 4 * q_size + 2 * kv_size
    width = max(3 * hidden + 3 * inner, 4 * hidden + inner, attention)
    return tokens * width * DTYPE_BYTES[config.model.dtype]


def attention_bytes(config: OctavoConfig) -> int:
    """Work space of attention.

    A GPU keeps one partial result per row and KV head (and per share of the work that the
    multiprocessors split), and the list of all tiles of keys. A CPU gathers keys and values of
    like rows, in parts of limited size but at least one request, and holds the scores of a decode
    step and the mask of a prefill; that is PyTorch's way, the C kernels need next to nothing.
    """
    arch, scheduler = config.model.arch, config.scheduler
    if arch.is_encoder:
        return _encoder_attention_bytes(config)
    if config.device.device_type == "cuda":
        rows = scheduler.max_num_seqs
        partials = arch.num_kv_heads * DECODE_QUERIES * arch.head_size * _FLOAT32
        tiles = rows * cdiv(config.model.max_model_len, DECODE_TILE)
        record = DECODE_RECORD + DECODE_TILE // config.cache.block_size
        return (rows + DECODE_SHARES) * partials + tiles * record * _INT32
    longest = round_up(config.model.max_model_len, config.cache.block_size)
    key_bytes = 2 * arch.num_kv_heads * arch.head_size * _FLOAT32
    every = int(CPU_BUFFER_GROWTH * scheduler.max_num_seqs * longest)
    keys = min(max(CPU_GATHER_BYTES // key_bytes, longest), every)
    mask = min(CPU_SCORES_BYTES, scheduler.max_num_batched_tokens * longest * _FLOAT32)
    return keys * (key_bytes + arch.num_heads * _FLOAT32) + mask


def _encoder_attention_bytes(config: OctavoConfig) -> int:
    """Padded queries, keys and values of a batch of texts, its result, and its scores."""
    arch = config.model.arch
    tokens = round(ENCODER_STRETCH * config.scheduler.max_num_batched_tokens)
    width = 4 * arch.num_heads * arch.head_size
    copies = tokens * width * DTYPE_BYTES[config.model.dtype]
    longest = arch.num_heads * config.model.max_model_len**2
    return copies + max(ENCODER_SCORES, longest) * _FLOAT32


def sampling_bytes(config: OctavoConfig) -> int:
    """Tables of token counts and of allowed tokens, should every request use both.

    One that has ended keeps its row as long as a step in flight has its slot.
    """
    width = _INT32 + 1
    return next_power_of_2(config.scheduler.num_slots) * config.model.vocab_size * width


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
    """The tables of cosines and sines, one row per position; one table per setting."""
    arch = config.model.arch
    kinds = zip(arch.rotates, arch.layer_types, strict=True)
    dims = {
        (str(rope), int(arch.head_size * rope.partial)) if rotates else ("", 2)
        for rotates, kind in kinds
        for rope in (arch.sliding_rope if kind == SLIDING_ATTENTION else arch.rope,)
    }
    return config.model.max_model_len * sum(dim for _, dim in dims) * _FLOAT32


def graph_bytes(config: OctavoConfig) -> int:
    """CUDA graphs once all are captured.

    They share activations and logits of the largest; each keeps its hidden states, and the driver
    keeps its launches. Plain decode steps have a graph for each of the usual ways to sample.
    """
    sizes = config.compilation.cudagraph_capture_sizes
    if not sizes:
        return 0
    arch, scheduler = config.model.arch, config.scheduler
    mixed = mixed_shapes(max(scheduler.max_num_seqs, *sizes), scheduler.max_num_batched_tokens)
    tokens = [*(sizes * DECODE_VARIANTS), *(tokens for _, tokens in mixed)]
    kept = sum(tokens) * arch.hidden_size * DTYPE_BYTES[config.model.dtype]
    logits = LOGITS_COPIES * max(sizes) * config.model.vocab_size * _FLOAT32
    nodes = len(tokens) * arch.num_layers * LAUNCHES_PER_LAYER
    driver = FIRST_GRAPH_BYTES + nodes * GRAPH_NODE_BYTES
    return activation_bytes(config, max(tokens)) + logits + kept + driver


def blas_bytes(config: OctavoConfig) -> int:
    """Work space that the library for matrix products keeps."""
    return BLAS_BYTES if config.device.device_type == "cuda" else 0


def context_bytes(config: OctavoConfig) -> int:
    """What the device's runtime takes by itself."""
    return CUDA_CONTEXT_BYTES if config.device.device_type == "cuda" else 0
