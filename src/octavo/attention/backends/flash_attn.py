"""Paged attention by FlashAttention 2, 3 or 4 in some package, for those who ask for it by name."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import Any, ClassVar, Protocol

import torch

from octavo.attention.interface import AttentionParams, AttentionSetup, CommonAttentionMetadata

_HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True, eq=False)
class FlashStep:
    """One step as FlashAttention wants it: R rows, T tokens, all on the device but the maxima."""

    query_start_loc: torch.Tensor  # [R + 1] int32
    seq_lens: torch.Tensor  # [R] int32
    page_table: torch.Tensor  # [R, max_blocks] int32
    max_query_len: int
    max_seq_len: int
    num_tokens: int  # of rows; a padded step has more


class _Call(Protocol):
    """q[T, Hq, D], keys and values [num_blocks, block_size, Hkv, D] -> [T, Hq, D]."""

    def __call__(
        self,
        q: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        step: FlashStep,
        params: AttentionParams,
    ) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class FlashLibrary:
    """One of the packages: how it is called and what it can't do."""

    name: str
    module: str
    call: Callable[..., torch.Tensor]  # (the package's function, then what _Call takes)
    function: str
    capabilities: tuple[int, ...]  # major compute capabilities
    page_multiple: int = 1
    has_sinks: bool = False
    code: str = ""  # the extension module that `module` calls, where a package may lack it

    @property
    def installed(self) -> bool:
        """Whether the package can be found; nothing of it is imported yet."""
        return _can_be_found(self.code or self.module)

    def load(self) -> _Call:
        """Import the package."""
        function = getattr(importlib.import_module(self.module), self.function)
        return functools.partial(self.call, function)


def _can_be_found(module: str) -> bool:
    """Whether there is a module; its parent packages are not imported, unlike by find_spec."""
    top, *inner = module.split(".")
    spec = importlib.util.find_spec(top)
    for name in inner:
        if spec is None or spec.submodule_search_locations is None:
            return False
        spec = PathFinder.find_spec(f"{spec.name}.{name}", spec.submodule_search_locations)
    return spec is not None


def _shared(step: FlashStep, params: AttentionParams, unlimited: int | None = -1) -> dict[str, Any]:
    """What every version calls alike; `unlimited` is how it is told that there is no window."""
    window = params.sliding_window
    return {
        "cu_seqlens_q": step.query_start_loc,
        "max_seqlen_q": step.max_query_len,
        "softmax_scale": params.scale,
        "causal": True,
        # Keys before the query, keys behind it.
        "window_size": (unlimited if window is None else window - 1, 0),
        "softcap": params.soft_cap or 0.0,
    }


def _version_2(
    function: Callable[..., torch.Tensor],
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    step: FlashStep,
    params: AttentionParams,
) -> torch.Tensor:
    # Lengths of keys are given as sums; the pages say where they are, the sums only how many.
    starts = torch.nn.functional.pad(step.seq_lens.cumsum(0, dtype=torch.int32), (1, 0))
    return function(
        q,
        keys,
        values,
        cu_seqlens_k=starts,
        max_seqlen_k=step.max_seq_len,
        **_shared(step, params),
        block_table=step.page_table,
    )


def _version_3(
    function: Callable[..., torch.Tensor],
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    step: FlashStep,
    params: AttentionParams,
) -> torch.Tensor:
    return function(
        q,
        keys,
        values,
        cache_seqlens=step.seq_lens,
        page_table=step.page_table,
        **_shared(step, params),
    )


def _version_3_of_vllm(
    function: Callable[..., torch.Tensor],
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    step: FlashStep,
    params: AttentionParams,
) -> torch.Tensor:
    return function(
        q,
        keys,
        values,
        max_seqlen_k=step.max_seq_len,
        seqused_k=step.seq_lens,
        **_shared(step, params),
        block_table=step.page_table,
        fa_version=3,
        # The only number type that its kernels take them in.
        s_aux=None if params.sinks is None else params.sinks.to(torch.bfloat16),
    )


def _version_4(
    function: Callable[..., tuple[torch.Tensor, torch.Tensor | None]],
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    step: FlashStep,
    params: AttentionParams,
) -> torch.Tensor:
    out, _ = function(
        q,
        keys,
        values,
        seqused_k=step.seq_lens,
        max_seqlen_k=step.max_seq_len,
        page_table=step.page_table,
        **_shared(step, params, unlimited=None),
        learnable_sink=None if params.sinks is None else params.sinks.to(q.dtype),
    )
    return out


# In the order of preference.
LIBRARIES = (
    FlashLibrary(
        "FlashAttention 3", "flash_attn_interface", _version_3, "flash_attn_with_kvcache", (9,)
    ),
    FlashLibrary(
        "FlashAttention 3 in the vllm package",
        "vllm.vllm_flash_attn",
        _version_3_of_vllm,
        "flash_attn_varlen_func",
        (9,),
        has_sinks=True,
        code="vllm.vllm_flash_attn._vllm_fa3_C",
    ),
    FlashLibrary(
        "FlashAttention 4",
        "flash_attn.cute",
        _version_4,
        "flash_attn_varlen_func",
        (9, 10),
        has_sinks=True,
    ),
    FlashLibrary(
        "FlashAttention 2",
        "flash_attn.flash_attn_interface",
        _version_2,
        "flash_attn_varlen_func",
        (8, 9, 10, 12),
        page_multiple=256,
    ),
)


class FlashAttention:
    """Attention of one KV group by the first installed package that can compute it.

    The packages choose their own order of sums, so results depend on the rows of a step.
    """

    name: ClassVar[str] = "flash_attn"

    def __init__(self, setup: AttentionSetup) -> None:
        library = next(each for each in LIBRARIES if not _lacks(each, setup))
        self._call = library.load()

    @classmethod
    def unsupported(cls, setup: AttentionSetup) -> list[str]:
        """Why this backend can't serve `setup`, one reason each; empty when it can."""
        params = setup.params
        reasons = []
        if setup.device.type != "cuda":
            reasons.append(f"it needs a CUDA device, not {setup.device.type}")
        if setup.dtype not in _HALVES:
            reasons.append(f"it computes in float16 and bfloat16, not {setup.dtype}")
        if setup.kv_dtype != setup.dtype:
            reasons.append(f"a cache of {setup.kv_dtype} with queries of {setup.dtype}")
        if params.head_size > 256 or params.head_size % 8:
            reasons.append(f"head size {params.head_size} isn't a multiple of 8 up to 256")
        if params.alibi_slopes is not None:
            reasons.append("it has no biases by distance (ALiBi)")
        if setup.batch_invariant:
            reasons.append("its order of sums depends on the rows of a step")
        if not reasons:
            lacks = [_lacks(library, setup) for library in LIBRARIES]
            if all(lacks):
                reasons.append("; ".join(lacks))
        return reasons

    def warm_up(self) -> None:
        """Nothing: the packages compile, if they do, what the warm-up's steps ask for."""

    def build_metadata(self, batch: CommonAttentionMetadata) -> FlashStep:
        """Gather the rows' pages; see AttentionBackend.build_metadata."""
        num_rows = batch.seq_lens.shape[0]
        return FlashStep(
            query_start_loc=batch.query_start_loc[: num_rows + 1],
            seq_lens=batch.seq_lens,
            page_table=batch.block_table[batch.slots[:num_rows]],
            max_query_len=batch.max_query_len,
            max_seq_len=batch.max_seq_len,
            num_tokens=batch.num_tokens,
        )

    def forward(
        self, q: torch.Tensor, kv: torch.Tensor, metadata: FlashStep, params: AttentionParams
    ) -> torch.Tensor:
        """Attention of every token of the step; see AttentionBackend.forward."""
        keys, values = (kv[:, part].transpose(1, 2) for part in (0, 1))
        out = self._call(q, keys, values, metadata, params)
        if metadata.num_tokens < q.shape[0]:
            # Nobody computes the tokens of no row, which must hold numbers.
            tokens = torch.arange(q.shape[0], device=q.device)
            inside = tokens < metadata.query_start_loc[-1]
            out = torch.where(inside[:, None, None], out, 0)
        return out.flatten(1)


def _lacks(library: FlashLibrary, setup: AttentionSetup) -> str:
    """Why a package can't compute `setup`; empty if it can."""
    if not library.installed:
        return f"{library.name} ({library.code or library.module}) is not installed"
    major = setup.capability[0] if setup.capability is not None else 0
    if major not in library.capabilities:
        return f"{library.name} has no kernels for compute capability {major}"
    if setup.block_size % library.page_multiple:
        return (
            f"{library.name} needs blocks of a multiple of {library.page_multiple} tokens "
            f"(--block-size), not {setup.block_size}"
        )
    if setup.params.sinks is not None and not library.has_sinks:
        return f"{library.name} has no attention sinks"
    return ""
