"""Time every kernel on the GPU at hand against its floor and against torch; sweep configurations.

    python benchmarks/kernels.py OUT.json [section ...]

Sections: gemm (sweep and table), invariant, attention, shared (decode on common prefixes, and
batch-invariant attention), small, sampling, chain (whole decode steps); default all.
Times are medians of CUDA-graph replays over inputs that don't fit in L2. A pool of processes
compiles every variant first, so that the timed process finds them in Triton's cache.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import multiprocessing
import os
import platform
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
import triton

from octavo.attention.interface import CommonAttentionMetadata
from octavo.kernels import activation, embedding, inputs, norm, rotary_cache, sample
from octavo.kernels.chunk_attention import chunk_attention, chunk_of
from octavo.kernels.decode_map import DecodeConfig, build_decode_map, decode_config
from octavo.kernels.draw import draw
from octavo.kernels.invariant_attention import invariant_attention
from octavo.kernels.invariant_gemm import InvariantConfig, invariant_gemm, invariant_tile
from octavo.kernels.invariant_map import build_invariant_map, invariant_config
from octavo.kernels.paged_decode import paged_decode
from octavo.kernels.paged_prefill import PrefillConfig, build_prefill_map, paged_prefill
from octavo.kernels.reference.sampling import top_logprobs as reference_top_logprobs
from octavo.kernels.slot_tables import NUM_FEATURES, NUM_WORDS, Feature, Kind, SlotTables, Word
from octavo.kernels.stream_gemm import MAX_TILES, GemmConfig, GemvConfig, stream_gemm
from octavo.kernels.stream_gemm_table import Plan, plan_for
from octavo.kernels.top_logprobs import top_logprobs

BANDWIDTH = 4476e9  # bytes/s: a large sum on an H200
COMPUTE = 790e12  # bf16 FLOP/s of cuBLAS there
BF16 = torch.bfloat16
START = time.time()


@dataclass(frozen=True)
class Model:
    name: str
    hidden: int
    heads: int
    kv_heads: int
    inter: int
    layers: int
    head_size: int = 128
    vocab: int = 151936

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        q, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        return {
            "qkv": (q + 2 * kv, self.hidden),
            "o": (self.hidden, q),
            "gate_up": (2 * self.inter, self.hidden),
            "down": (self.hidden, self.inter),
        }


MODELS = [
    Model("qwen3-8b", 4096, 32, 8, 12288, 36),
    Model("qwen3-0.6b", 1024, 16, 8, 3072, 28),
]
LM_HEADS = {m.name: (m.vocab, m.hidden) for m in MODELS}


def say(*parts: object) -> None:
    print(f"[{time.time() - START:6.1f}]", *parts, flush=True)


def graph_time(fn, calls: int, replays: int = 7) -> float:
    """Microseconds per call of fn(), which makes `calls` calls."""
    fn()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fn()
    graph.replay()
    times = []
    for _ in range(replays):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2] * 1e3 / calls


# --- GEMM ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gemm:
    shape: tuple[int, int]
    rows: int
    config: GemvConfig | GemmConfig | None  # None: cuBLAS
    pdl: bool = False

    @property
    def floor(self) -> float:
        n, k = self.shape
        return max(n * k * 2 / BANDWIDTH, 2 * n * k * self.rows / COMPUTE) * 1e6


ROWS = (1, 8, 32, 64)
TILES = [  # block_n, block_k, num_warps, num_stages
    (16, 256, 4, 4),
    (32, 128, 4, 4),
    (32, 256, 4, 4),
    (64, 64, 4, 6),
    (64, 128, 4, 4),
    (128, 64, 4, 4),
    (128, 64, 8, 5),
]


def gemm_shapes() -> list[tuple[int, int]]:
    shapes = [shape for model in MODELS for shape in model.linears.values()]
    return list(dict.fromkeys(shapes + list(LM_HEADS.values())))


def gemm_cases() -> list[Gemm]:
    cases = []
    for shape in gemm_shapes():
        n, k = shape
        for warps, block_n in ((2, 4), (4, 2), (4, 4), (4, 8), (8, 2), (8, 4), (8, 8)):
            if k % (warps * 256) == 0:
                cases.append(Gemm(shape, 1, GemvConfig(block_n, warps)))
        for rows in ROWS[1:]:
            for block_n, block_k, warps, stages in TILES:
                for split in (1, 2, 4, 8):
                    programs = -(-n // block_n) * split
                    useful = 96 <= programs <= 800 or (split == 1 and programs > 800)
                    if useful and k // split >= 2 * block_k:
                        config = GemmConfig(max(rows, 16), block_n, block_k, split, warps, stages)
                        cases.append(Gemm(shape, rows, config))
    return cases


@functools.cache
def weight_pool() -> torch.Tensor:
    """1.25 GB of random weights; every GEMM rotates among slices of it."""
    return torch.empty(151936 * 4096, dtype=BF16, device="cuda").normal_(std=0.02)


@functools.cache
def arrival_counters() -> torch.Tensor:
    return torch.zeros(MAX_TILES, dtype=torch.int32, device="cuda")


def run_gemm(case: Gemm, weights: list[torch.Tensor], x: torch.Tensor) -> None:
    for weight in weights:
        if case.config is None:
            F.linear(x, weight)
        else:
            arrivals = arrival_counters()
            stream_gemm(x, weight, None, case.config, arrivals, pdl=case.pdl)


def warm_gemm(case: Gemm) -> None:
    n, k = case.shape
    weight = torch.empty(n, k, dtype=BF16, device="cuda")
    run_gemm(case, [weight], torch.empty(case.rows, k, dtype=BF16, device="cuda"))


def time_gemm(case: Gemm) -> float:
    n, k = case.shape
    pool = weight_pool()
    count = min(pool.numel() // (n * k), max(4, -(-200_000_000 // (n * k * 2))), 48)
    weights = list(pool[: count * n * k].view(count, n, k))
    x = torch.randn(case.rows, k, dtype=BF16, device="cuda")
    return graph_time(lambda: run_gemm(case, weights, x), count)


def gemm_section(pool) -> dict:
    cases = gemm_cases()
    say(f"gemm: {len(cases)} cases")
    warm(pool, warm_gemm, unique_variants(cases))
    say("gemm: compiled")
    times: dict[tuple, list[tuple[float, Gemm]]] = {}
    for case in cases:
        took = timed(time_gemm, case)
        if took is not None:
            times.setdefault((case.shape, case.rows), []).append((took, case))
    say("gemm: first pass timed")
    second = []
    for found in times.values():
        found.sort(key=lambda pair: pair[0])
        second.append(dataclasses.replace(found[0][1], pdl=True))
    warm(pool, warm_gemm, unique_variants(second))
    for case in second:
        took = timed(time_gemm, case)
        if took is not None:
            times[case.shape, case.rows].append((took, case))
    rows = []
    for (shape, m), found in times.items():
        found.sort(key=lambda pair: pair[0])
        plain = next(pair for pair in found if not pair[1].pdl)
        chained = next((t for t, c in found if c.pdl), plain[0])
        cublas = timed(time_gemm, Gemm(shape, m, None))
        row = {
            "shape": shape,
            "rows": m,
            "floor_us": round(plain[1].floor, 2),
            "cublas_us": round(cublas, 2),
            "stream_us": round(plain[0], 2),
            "config": str(plain[1].config),
            "pdl_us": round(chained, 2),
            "top": [[round(t, 2), str(c.config)] for t, c in found[:6]],
        }
        rows.append(row)
        say(
            f"gemm N={shape[0]:6d} K={shape[1]:5d} M={m:3d} floor {row['floor_us']:7.2f} "
            f"cublas {row['cublas_us']:7.2f} stream {row['stream_us']:7.2f}",
            f"pdl {chained:7.2f}",
            short(plain[1].config),
        )
    return {"table": rows}


def short(config) -> str:
    return ",".join(str(v) for v in dataclasses.astuple(config))


def unique_variants(cases: list[Gemm]) -> list[Gemm]:
    """One case per compiled variant."""
    found = {}
    for case in cases:
        inner = case.shape[1] if isinstance(case.config, GemvConfig) else 0
        found.setdefault((case.config, case.pdl, inner, case.rows == 1), case)
    return list(found.values())


# --- batch-invariant GEMM -----------------------------------------------------------------------


@dataclass(frozen=True)
class Invariant:
    shape: tuple[int, int]
    rows: int
    config: InvariantConfig | None  # None: what runs without the mode


INVARIANT_ROWS = (1, 8, 32, 64, 128, 256, 512, 1024, 8192)
MULTIPROCESSORS = 132
SHARED_BYTES = 227 << 10


def chosen(shape: tuple[int, int], rows: int) -> InvariantConfig:
    return invariant_tile(rows, *shape, 2, MULTIPROCESSORS)


def invariant_cases() -> list[Invariant]:
    """For every shape what is chosen now, and what else might be faster; all give the same bits."""
    cases = []
    for shape in gemm_shapes():
        for rows in INVARIANT_ROWS:
            if rows > 256 and shape in LM_HEADS.values():
                continue  # sampled rows only
            few = rows <= 64
            tiles = [(max(rows, 16), 64, step, k, 4) for step in (16, 32, 64) for k in (64, 128)]
            if not few:
                tiles = [(256, 128, 128, 64, 8), (128, 128, 128, 64, 8), (128, 128, 128, 64, 4)]
                tiles += [(128, 64, 64, 64, 4), (64, 128, 128, 64, 4), (256, 64, 64, 64, 4)]
            found = {chosen(shape, rows)}
            for block_m, block_n, step, block_k, warps in tiles:
                for stages in (3, 4, 6, 10) if few else (3, 4):
                    shared = (block_m + block_n) * block_k * 2 * stages
                    if shared <= SHARED_BYTES and (not few or 60 <= shape[0] // step <= 2400):
                        found.add(InvariantConfig(block_m, block_n, step, block_k, warps, stages))
            cases += [Invariant(shape, rows, config) for config in found]
    return cases


def run_invariant(case: Invariant, weights: list[torch.Tensor], x: torch.Tensor) -> None:
    if case.config is None:
        run_gemm(Gemm(case.shape, case.rows, plan_for(*case.shape).config(case.rows)), weights, x)
        return
    for weight in weights:
        invariant_gemm(x, weight, None, case.config, pdl=True)


def warm_invariant(case: Invariant) -> None:
    weight = torch.empty(case.shape, dtype=BF16, device="cuda")
    x = torch.empty(case.rows, case.shape[1], dtype=BF16, device="cuda")
    run_invariant(case, [weight], x)


def time_invariant(case: Invariant) -> float:
    n, k = case.shape
    pool = weight_pool()
    count = min(pool.numel() // (n * k), max(2, -(-200_000_000 // (n * k * 2))), 48)
    weights = list(pool[: count * n * k].view(count, n, k))
    x = torch.randn(case.rows, k, dtype=BF16, device="cuda")
    return graph_time(lambda: run_invariant(case, weights, x), count, 5)


def invariant_section(pool) -> dict:
    """What the mode costs: the chosen tile and the fastest against the usual path."""
    cases = invariant_cases()
    say(f"invariant: {len(cases)} cases")
    warm(pool, warm_invariant, list({(c.config, c.rows == 1): c for c in cases}.values()))
    say("invariant: compiled")
    times: dict[tuple, list[tuple[float, Invariant]]] = {}
    for case in cases:
        took = timed(time_invariant, case)
        if took is not None:
            times.setdefault((case.shape, case.rows), []).append((took, case))
    rows, now, usual = [], {}, {}
    for key, found in times.items():
        shape, num_rows = key
        best, case = min(found, key=lambda pair: pair[0])
        now[key] = next(t for t, c in found if c.config == chosen(shape, num_rows))
        usual[key] = timed(time_invariant, Invariant(shape, num_rows, None))
        rows.append([shape, num_rows, usual[key], now[key], best, short(case.config)])
        say(
            f"invariant N={shape[0]:6d} K={shape[1]:5d} M={num_rows:4d} usual {usual[key]:8.2f} "
            f"chosen {now[key]:8.2f} ({short(chosen(shape, num_rows))}) best {best:8.2f} "
            f"({short(case.config)})"
        )
    totals = []
    for model in MODELS:
        for num_rows in INVARIANT_ROWS:
            # The output layer computes sampled rows only.
            head = (LM_HEADS[model.name], min(num_rows, 256))
            keys = [(shape, num_rows) for shape in model.linears.values()] * model.layers
            before, after = (sum(t[k] for k in [*keys, head]) / 1e3 for t in (usual, now))
            totals.append([model.name, num_rows, before, after])
            say(
                f"invariant {model.name} M={num_rows:4d} linears of a step {before:8.3f} -> "
                f"{after:8.3f} ms ({100 * (after / before - 1):+.1f}%)"
            )
    return {"table": rows, "totals": totals}


# --- attention ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decode:
    name: str
    heads: int
    lengths: tuple[int, ...]
    config: DecodeConfig
    block_major: bool = True
    layers: int = 36

    @property
    def floor(self) -> float:
        return sum(self.lengths) * 2 * 8 * 128 * 2 / BANDWIDTH * 1e6


@dataclass(frozen=True)
class Prefill:
    name: str
    heads: int
    rows: tuple[tuple[int, int], ...]  # query tokens, length
    config: PrefillConfig

    @property
    def flops(self) -> float:
        pairs = sum(q * (n - q) + q * (q + 1) / 2 for q, n in self.rows)
        return 4 * self.heads * 128 * pairs


@functools.cache
def cache_pool(num_blocks: int) -> torch.Tensor:
    pool = torch.empty(num_blocks, 36, 2, 8, 16, 128, dtype=BF16, device="cuda")
    for part in pool.split(1000):
        part.normal_()
    return pool


def make_batch(rows, num_blocks: int) -> CommonAttentionMetadata:
    query_lens = np.array([q for q, _ in rows], dtype=np.int32)
    lengths = np.array([n for _, n in rows], dtype=np.int32)
    start = np.concatenate([[0], np.cumsum(query_lens)]).astype(np.int32)
    counts = [-(-int(n) // 16) for n in lengths]
    order = torch.randperm(num_blocks)
    if sum(counts) > num_blocks:
        order = order.repeat(-(-sum(counts) // num_blocks))
    table = torch.zeros(len(rows), 4096, dtype=torch.int32)
    at = 0
    for row, count in enumerate(counts):
        table[row, :count] = order[at : at + count]
        at += count
    return CommonAttentionMetadata(
        query_start_loc=torch.from_numpy(start).cuda(),
        seq_lens=torch.from_numpy(lengths).cuda(),
        block_table=table.cuda(),
        slots=torch.arange(len(rows), device="cuda"),
        query_start_loc_cpu=start,
        seq_lens_cpu=lengths,
        num_rows=len(rows),
        num_decode_rows=len(rows),
        num_tokens=int(start[-1]),
        max_query_len=int(query_lens.max()),
        max_seq_len=int(lengths.max()),
    )


def run_decode(case: Decode, batch, q, pool: torch.Tensor) -> None:
    num_blocks = pool.shape[0]
    flat = pool if case.block_major else pool.view(36, num_blocks, 2, 8, 16, 128).transpose(0, 1)
    step = (batch.query_start_loc, batch.seq_lens)
    decode_map = build_decode_map(
        *step,
        batch.slots,
        batch.block_table,
        block_size=16,
        num_heads=case.heads,
        num_kv_heads=8,
        head_size=128,
        max_query_len=1,
        window=0,
        config=case.config,
    )
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    for layer in range(case.layers):
        paged_decode(q, flat[:, layer], out, batch.query_start_loc, decode_map, scale=128**-0.5)


def run_prefill(case: Prefill, batch, q, pool: torch.Tensor, layers: int) -> None:
    prefill_map = build_prefill_map(
        batch.query_start_loc,
        batch.seq_lens,
        batch.slots,
        num_tokens=q.shape[0],
        num_heads=case.heads,
        num_kv_heads=8,
        min_query_len=2,
        max_query_len=1 << 30,
        config=case.config,
    )
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    for layer in range(layers):
        paged_prefill(q, pool[:, layer], out, batch.block_table, prefill_map, scale=128**-0.5)


def warm_attention(case: Decode | Prefill) -> None:
    pool = torch.zeros(40, 36, 2, 8, 16, 128, dtype=BF16, device="cuda")
    if isinstance(case, Decode):
        batch = make_batch([(1, 300), (1, 200)], 40)
        q = torch.zeros(2, case.heads, 128, dtype=BF16, device="cuda")
        run_decode(dataclasses.replace(case, layers=1), batch, q, pool)
    else:
        batch = make_batch([(300, 300)], 40)
        q = torch.zeros(300, case.heads, 128, dtype=BF16, device="cuda")
        run_prefill(case, batch, q, pool, 1)


def time_decode(case: Decode) -> float:
    pool = cache_pool(6144)
    batch = make_batch([(1, n) for n in case.lengths], pool.shape[0])
    q = torch.randn(len(case.lengths), case.heads, 128, dtype=BF16, device="cuda")
    return graph_time(lambda: run_decode(case, batch, q, pool), case.layers, 5)


def time_prefill(case: Prefill) -> float:
    pool = cache_pool(6144)
    batch = make_batch(case.rows, pool.shape[0])
    q = torch.randn(batch.num_tokens, case.heads, 128, dtype=BF16, device="cuda")
    return graph_time(lambda: run_prefill(case, batch, q, pool, 4), 4, 5)


DECODE_LOADS = {
    "b1_ctx512": (512,),
    "b32_ctx300": tuple(range(285, 317)),
    "b256_ctx400": tuple(range(272, 528)),
    "b32_ctx8k": (8192,) * 32,
    "1x32k_31x512": (32768,) + (512,) * 31,
    "b1_ctx32k": (32768,),
}
DECODE_CONFIGS = [
    DecodeConfig(64, 2, 4, 3),
    DecodeConfig(32, 4, 2, 3),
]
PREFILL_LOADS = {
    "1k": ((1024, 1024),),
    "8k": ((8192, 8192),),
    "8x1k": ((1024, 1024),) * 8,
    "8k_of_32k": ((8192, 32768),),
}
PREFILL_CONFIGS = [
    PrefillConfig(128, 64, 1, 8, 3),
    PrefillConfig(128, 128, 1, 8, 3),
]


def attention_section(pool) -> dict:
    decodes = [
        Decode(name, heads, lengths, config)
        for heads in (32, 16)
        for name, lengths in DECODE_LOADS.items()
        for config in DECODE_CONFIGS
        if heads == 32 or "8k" not in name
    ]
    prefills = [
        Prefill(name, 32, rows, config)
        for name, rows in PREFILL_LOADS.items()
        for config in PREFILL_CONFIGS
    ]
    kinds = {(type(c), c.heads, c.config): c for c in [*decodes, *prefills]}
    warm(pool, warm_attention, list(kinds.values()))
    say("attention: compiled")
    rows = []
    best: dict[tuple, tuple[float, Decode]] = {}
    for case in decodes:
        took = timed(time_decode, case)
        if took is None:
            continue
        key = (case.heads, case.name)
        rows.append(["decode", *key, short(case.config), round(took, 2), round(case.floor, 2)])
        if key not in best or took < best[key][0]:
            best[key] = (took, case)
    for (heads, name), (took, case) in best.items():
        other = timed(time_decode, dataclasses.replace(case, block_major=False))
        rows.append(["decode_layer_major", heads, name, short(case.config), round(other, 2)])
        per = " ".join(
            f"{r[3]}={r[4]}" for r in rows if r[0] == "decode" and r[1:3] == [heads, name]
        )
        say(
            f"decode Hq={heads} {name:14s} floor {case.floor:7.2f} best {took:7.2f} "
            f"layer-major {other:7.2f} | {per}"
        )
    for name, loads in PREFILL_LOADS.items():
        found = []
        for case in prefills:
            if case.name != name:
                continue
            took = timed(time_prefill, case)
            if took is not None:
                found.append((round(case.flops / took / 1e6, 1), short(case.config)))
                rows.append(["prefill", 32, name, short(case.config), round(took, 2), found[-1][0]])
        say(f"prefill {name:10s} TFLOP/s " + " ".join(f"{c}={t}" for t, c in found), len(loads))
    for name, (query_len, seq_len) in CHUNKS.items():
        took, first_ms = time_chunk(query_len, seq_len)
        pairs = query_len * (seq_len - query_len / 2 + 0.5)
        rate = round(4 * 32 * 128 * pairs / took / 1e6, 1)
        rows.append(["chunk", 32, name, "cudnn", round(took, 1), rate, round(first_ms, 1)])
        say(
            f"chunk {name}: {took:.1f} us, {rate} TFLOP/s, first call {first_ms:.1f} ms on the host"
        )
    cache_pool.cache_clear()
    torch.cuda.empty_cache()
    return {"table": rows}


@dataclass(frozen=True)
class Shared:
    """Groups of decode rows of Qwen3-8B on one prefix each, then lone rows."""

    name: str
    groups: tuple[tuple[int, int], ...]  # rows, tokens of their prefix
    lone: tuple[int, ...] = ()  # lengths
    tail: int = 96  # tokens of a group's row behind its prefix
    layers: int = 36

    @property
    def once(self) -> int:
        """Bytes of keys and values if each prefix is read once."""
        tails = self.tail * sum(rows for rows, _ in self.groups)
        return (sum(n for _, n in self.groups) + tails + sum(self.lone)) * 4096

    @property
    def flops(self) -> float:
        keys = sum(rows * (n + self.tail) for rows, n in self.groups) + sum(self.lone)
        return 4.0 * 32 * 128 * keys


SHARED = [
    Shared("128x8k", ((128, 8192),)),
    Shared("32x8k", ((32, 8192),)),
    Shared("4x8k", ((4, 8192),)),
    Shared("2x8k", ((2, 8192),)),
    Shared("256x1k", ((256, 1024),)),
    Shared("64x2k_64x4k", ((64, 2048), (64, 4096))),
    Shared("16x1k_240x400", ((16, 1024),), (400,) * 240),
    Shared("33x256", ((33, 256),)),
]
HOWS = ("apart", "none told", "once")


def shared_batch(case: Shared) -> tuple[CommonAttentionMetadata, torch.Tensor]:
    """(a batch whose groups have common blocks, [2, R] int32: first rows and prefix lengths)."""
    lengths = [n + case.tail for rows, n in case.groups for _ in range(rows)] + list(case.lone)
    batch = make_batch([(1, n) for n in lengths], 6144)
    shared = torch.zeros(2, len(lengths), dtype=torch.int32)
    first = 0
    for rows, n in case.groups:
        # A copy: the source is a part of what is written.
        common = batch.block_table[first, : n // 16].clone()
        batch.block_table[first : first + rows, : n // 16] = common
        shared[0, first : first + rows] = first
        shared[1, first : first + rows] = n
        first += rows
    return batch, shared.cuda()


def time_shared(case: Shared, how: str) -> float:
    """apart: a kernel that knows no groups; none told: one that does, told of none; once."""
    pool = cache_pool(6144)
    batch, shared = shared_batch(case)
    if how == "none told":
        shared.zero_()
    q = torch.randn(batch.num_rows, 32, 128, dtype=BF16, device="cuda")
    out = torch.empty_like(q)

    def layers() -> None:
        decode_map = build_decode_map(
            batch.query_start_loc,
            batch.seq_lens,
            batch.slots,
            batch.block_table,
            block_size=16,
            num_heads=32,
            num_kv_heads=8,
            head_size=128,
            max_query_len=1,
            window=0,
            config=decode_config(128, 2, 4, num_rows=batch.num_rows, group=4),
            shared_rows=None if how == "apart" else (shared[0], shared[1]),
        )
        for layer in range(case.layers):
            paged_decode(q, pool[:, layer], out, batch.query_start_loc, decode_map, scale=128**-0.5)

    return graph_time(layers, case.layers, 5)


def time_invariant_attention(rows: tuple[tuple[int, int], ...]) -> float:
    """Rows of (query tokens, length)."""
    pool = cache_pool(6144)
    batch = make_batch(rows, pool.shape[0])
    q = torch.randn(batch.num_tokens, 32, 128, dtype=BF16, device="cuda")
    out = torch.empty_like(q)
    layers = 36 if batch.max_query_len == 1 else 4

    def attend() -> None:
        tasks = build_invariant_map(
            batch.query_start_loc,
            batch.seq_lens,
            batch.slots,
            num_tokens=batch.num_tokens,
            num_heads=32,
            num_kv_heads=8,
            head_size=128,
            window=0,
            config=invariant_config(128, 2),
        )
        for layer in range(layers):
            invariant_attention(q, pool[:, layer], out, batch.block_table, tasks, scale=128**-0.5)

    return graph_time(attend, layers, 5)


def shared_section() -> dict:
    """Few variants, so they are compiled where they run."""
    rows = []
    for case in SHARED:
        took = {how: timed(lambda c, how=how: time_shared(c, how), case) for how in HOWS}
        once = took["once"] or float("nan")
        rows.append(["shared", case.name, took, round(case.once / BANDWIDTH * 1e6, 2)])
        say(
            f"shared {case.name:14s} {once:7.2f} us, {case.once / once / 1e3:6.0f} GB/s of what is "
            f"read once, {case.flops / once / 1e6:5.0f} TFLOP/s, floors "
            f"{case.once / BANDWIDTH * 1e6:6.2f} and {case.flops / COMPUTE * 1e6:6.2f}; apart "
            f"{took['apart'] or 0:8.2f}, told of none {took['none told'] or 0:8.2f}"
        )
    loads = {name: tuple((1, n) for n in lengths) for name, lengths in DECODE_LOADS.items()}
    for name, load in (loads | PREFILL_LOADS).items():
        took = timed(time_invariant_attention, load)
        rows.append(["invariant attention", name, took])
        say(f"invariant attention {name:14s} {took or 0:9.2f} us")
    cache_pool.cache_clear()
    torch.cuda.empty_cache()
    return {"table": rows}


CHUNKS = {  # query tokens, length
    "8k": (8192, 8192),
    "7800": (7800, 7800),
    "8k_of_16k": (8192, 16384),
    "8k_of_32k": (8192, 32768),
    "16k": (16384, 16384),
}


def time_chunk(query_len: int, seq_len: int) -> tuple[float, float]:
    """(microseconds a call on the device, milliseconds of the first call on the host)."""
    pool = cache_pool(6144)
    batch = make_batch([(query_len, seq_len)], pool.shape[0])
    chunk = chunk_of(0, 0, query_len, seq_len)
    q = torch.randn(query_len, 32, 128, dtype=BF16, device="cuda")
    out = torch.empty_like(q)

    def call() -> None:
        chunk_attention(q, pool[:, 0], out, batch.slots, batch.block_table, chunk, scale=128**-0.5)

    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    first = time.perf_counter() - begin
    return graph_time(call, 1, 5), first * 1e3


# --- small kernels ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Small:
    kernel: str
    tokens: int
    pdl: bool = False

    @property
    def name(self) -> str:
        return f"{self.kernel} T={self.tokens}{' pdl' if self.pdl else ''}"


def small_cases() -> list[Small]:
    return [
        Small(kernel, tokens, pdl)
        for tokens in (1, 256, 8192)
        for kernel in ("fused_add_rms_norm", "silu_and_mul", "qk_norm_rope_cache")
        for pdl in (False, True)
        if not (pdl and tokens > 256)
    ]


def prepare_small(case: Small, copies: int):
    """(function of one input, inputs, bytes it must move): Qwen3-8B's sizes."""
    tokens, pdl = case.tokens, case.pdl
    make = functools.partial(torch.empty, dtype=BF16, device="cuda")
    weight = torch.ones(4096, dtype=BF16, device="cuda")
    if case.kernel == "fused_add_rms_norm":
        pairs = make(copies, 2, tokens, 4096).normal_()
        call = functools.partial(norm.fused_add_rms_norm, weight=weight, eps=1e-6, pdl=pdl)
        return (lambda pair: call(pair[0], pair[1])), pairs, 4 * tokens * 4096 * 2
    if case.kernel == "silu_and_mul":
        gates = make(copies, tokens, 24576).normal_()
        return functools.partial(activation.silu_and_mul, pdl=pdl), gates, tokens * 12288 * 6
    qkv = make(copies, tokens, 6144).normal_()
    pages = make(-(-tokens // 16), 36, 2, 8, 16, 128)
    positions = torch.arange(tokens, device="cuda")
    cos_sin = torch.rand(8192, 128, device="cuda")

    def rotate(x: torch.Tensor) -> None:
        rotary_cache.qk_norm_rope_cache(
            x, weight[:128], weight[:128], 1e-6, cos_sin, positions, positions,
            pages[:, 3], 128, True, pdl=pdl,
        )  # fmt: skip

    return rotate, qkv, tokens * 6144 * 2 * 2


def warm_small(case: Small) -> None:
    call, given, _ = prepare_small(case, 1)
    call(given[0])


def time_small(case: Small) -> tuple[float, float]:
    copies = 4 if case.tokens > 1000 else 16
    call, given, num_bytes = prepare_small(case, copies)
    took = graph_time(lambda: [call(x) for x in given], copies)
    return round(took, 2), round(num_bytes / BANDWIDTH * 1e6, 2)


def small_section(pool) -> dict:
    warm(pool, warm_small, small_cases())
    rows = []
    for case in small_cases():
        found = timed(time_small, case)
        if found is not None:
            rows.append([case.name, *found])
            say(f"small {case.name:30s} {found[0]:8.2f} us, floor {found[1]:8.2f}")
    return {"table": rows}


# --- sampling -----------------------------------------------------------------------------------

VOCAB = 151936
# Standard deviations of normal logits: a nucleus of a few tokens, and one of tens of thousands.
SPREADS = {"peaked": 8.0, "flat": 1.0}


@dataclass(frozen=True)
class Sampling:
    kind: str
    rows: int
    spread: str = "peaked"

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.rows} rows, {self.spread}"

    @property
    def floor(self) -> float:
        return self.rows * VOCAB * 2 / BANDWIDTH * 1e6


SAMPLING_KINDS = {  # top-k, top-p, min-p, penalties
    "temperature": (VOCAB, 1.0, 0.0, False),
    "top-p 0.9": (VOCAB, 0.9, 0.0, False),
    "top-k 50": (50, 1.0, 0.0, False),
    "min-p 0.05": (VOCAB, 1.0, 0.05, False),
    "top-k 20 top-p 0.95": (20, 0.95, 0.0, False),
    "top-k 50 top-p 0.9 penalties": (50, 0.9, 0.0, True),
}


def sampling_cases() -> list[Sampling]:
    whole = ("greedy", "torch argmax", "torch sort", "top-5 logprobs", "torch top-5 logprobs")
    kinds = [Sampling(kind, rows) for rows in (1, 32, 256) for kind in (*whole, *SAMPLING_KINDS)]
    flat = [Sampling("top-p 0.9", rows, "flat") for rows in (1, 32, 256)]
    return kinds + flat


def prepare_sampling(case: Sampling):
    """A function of logits [rows, VOCAB]."""
    chosen = torch.zeros(case.rows, dtype=torch.int64, device="cuda")
    calls = {
        "greedy": sample.greedy_checked,
        "torch argmax": lambda x: x.argmax(dim=-1),
        "torch sort": lambda x: x.float().sort(dim=-1, descending=True),
        "top-5 logprobs": lambda x: top_logprobs(x, chosen, 5, True),
        "torch top-5 logprobs": lambda x: reference_top_logprobs(x.float(), chosen, 5, True),
    }
    if case.kind in calls:
        return calls[case.kind]
    top_k, top_p, min_p, penalties = SAMPLING_KINDS[case.kind]
    words = torch.zeros(case.rows, NUM_WORDS, dtype=torch.int32)
    floats = words.view(torch.float32)
    floats[:, Word.TEMPERATURE], floats[:, Word.TOP_P] = 0.7, top_p
    floats[:, Word.LOG_MIN_P] = float(np.log(min_p)) if min_p else -np.inf
    words[:, Word.TOP_K] = top_k
    words[:, Word.SEED_LOW] = torch.arange(case.rows)
    words[:, Word.KIND] = Kind.WHOLE if case.kind == "temperature" else Kind.TRUNCATED
    features = torch.full((case.rows, NUM_FEATURES), -1, dtype=torch.int32)
    values = torch.zeros(case.rows, 4)
    seen = torch.zeros(0, VOCAB, dtype=torch.int32)
    if penalties:
        features[:, Feature.PENALTIES] = torch.arange(case.rows)
        values[:, :3] = torch.tensor([1.1, 0.3, 0.5])
        seen = (torch.rand(case.rows, VOCAB) < 0.01).int()
    none = torch.zeros(0, 0, dtype=torch.int64)
    tables = SlotTables(
        *(tensor.cuda() for tensor in (words, features, seen, values)),
        torch.zeros(0, VOCAB, dtype=torch.bool, device="cuda"),
        *(tensor.cuda() for tensor in (none, none.float(), none, none)),
    )
    slots = torch.arange(case.rows, device="cuda")
    positions = torch.arange(case.rows, dtype=torch.int32, device="cuda")
    return lambda x: draw(x, slots, positions, tables, edits=penalties)


def warm_sampling(case: Sampling) -> None:
    prepare_sampling(case)(torch.zeros(case.rows, VOCAB, dtype=BF16, device="cuda"))


def time_sampling(case: Sampling) -> float:
    copies = 16 if case.rows <= 32 else 4
    shape = (copies, case.rows, VOCAB)
    logits = torch.empty(shape, dtype=BF16, device="cuda").normal_(std=SPREADS[case.spread])
    call = prepare_sampling(case)
    return round(graph_time(lambda: [call(x) for x in logits], copies), 2)


def sampling_section(pool) -> dict:
    warm(pool, warm_sampling, [case for case in sampling_cases() if case.rows == 1])
    rows = []
    for case in sampling_cases():
        took = timed(time_sampling, case)
        if took is not None:
            rows.append([case.name, took, round(case.floor, 2)])
            say(f"sampling {case.name:50s} {took:8.2f} us, floor {case.floor:8.2f}")
        torch.cuda.empty_cache()
    return {"table": rows}


# --- whole steps --------------------------------------------------------------------------------


class DecodeChain:
    """A whole decode step of a model with random weights: what a CUDA graph of one would hold."""

    def __init__(self, model: Model, rows: int, length: int) -> None:
        self.model, self.rows = model, rows
        make = functools.partial(torch.empty, dtype=BF16, device="cuda")
        self.weights = [
            {name: make(shape).normal_(std=0.02) for name, shape in model.linears.items()}
            for _ in range(model.layers)
        ]
        self.lm_head = make(model.vocab, model.hidden).normal_(std=0.02)
        self.norm = torch.ones(model.hidden, dtype=BF16, device="cuda")
        self.head_norm = torch.ones(model.head_size, dtype=BF16, device="cuda")
        blocks = -(-length // 16) * rows + 1
        self.cache = make(blocks, model.layers, 2, 8, 16, 128).normal_()
        self.batch = make_batch([(1, length)] * rows, blocks)
        self.ids = torch.randint(0, model.vocab, (rows,), dtype=torch.int32, device="cuda")
        self.positions = torch.full((rows,), length - 1, device="cuda")
        self.slots = inputs.slot_mapping(
            self.positions,
            torch.arange(rows, dtype=torch.int32, device="cuda"),
            self.batch.slots,
            self.batch.block_table,
            16,
        )
        angles = torch.rand(length, 64, device="cuda")
        self.cos_sin = torch.cat([angles.cos(), angles.sin()], dim=1)

    def linear(self, x, weight, streaming: bool, pdl: bool):
        plan = plan_for(*weight.shape) if streaming else Plan(())
        config = plan.config(x.shape[0])
        if config is None:
            return F.linear(x, weight)
        return stream_gemm(x, weight, None, config, arrival_counters(), pdl=pdl)

    def step(self, streaming: bool, pdl: bool) -> torch.Tensor:
        """One step, by the table of `stream_gemm` or by cuBLAS."""
        model, batch = self.model, self.batch
        linear = functools.partial(self.linear, streaming=streaming, pdl=pdl)
        decode_map = build_decode_map(
            batch.query_start_loc,
            batch.seq_lens,
            batch.slots,
            batch.block_table,
            block_size=16,
            num_heads=model.heads,
            num_kv_heads=8,
            head_size=128,
            max_query_len=1,
            window=0,
            config=decode_config(128, 2, model.heads // 8),
        )
        hidden = embedding.embedding(self.ids, self.lm_head, pdl=pdl)
        residual = hidden
        out = None
        for layer, weights in enumerate(self.weights):
            if out is None:
                x = norm.rms_norm(hidden, self.norm, 1e-6, pdl=pdl)
            else:
                x, residual = norm.fused_add_rms_norm(out, residual, self.norm, 1e-6, pdl=pdl)
            qkv = linear(x, weights["qkv"])
            q = rotary_cache.qk_norm_rope_cache(
                qkv, self.head_norm, self.head_norm, 1e-6, self.cos_sin, self.positions,
                self.slots, self.cache[:, layer], 128, True, pdl=pdl,
            )  # fmt: skip
            attended = torch.empty(q.shape, dtype=BF16, device="cuda")
            paged_decode(
                q, self.cache[:, layer], attended, batch.query_start_loc, decode_map,
                scale=128**-0.5,
            )  # fmt: skip
            out = linear(attended.flatten(1), weights["o"])
            x, residual = norm.fused_add_rms_norm(out, residual, self.norm, 1e-6, pdl=pdl)
            x = activation.silu_and_mul(linear(x, weights["gate_up"]), pdl=pdl)
            out = linear(x, weights["down"])
        x, _ = norm.fused_add_rms_norm(out, residual, self.norm, 1e-6, pdl=pdl)
        return sample.greedy(linear(x, self.lm_head))


def warm_chain(case: tuple) -> None:
    model, num_rows, variant = case
    DecodeChain(dataclasses.replace(model, layers=2), num_rows, 40).step(*variant)


def chain_section(pool) -> dict:
    loads = [(model, num_rows) for model in MODELS for num_rows in (1, 8, 32)]
    variants = {"cublas": (False, False), "stream": (True, False), "stream pdl": (True, True)}
    warm(pool, warm_chain, [(*load, variant) for load in loads for variant in variants.values()])
    say("chain: compiled")
    rows = []
    for model, num_rows in loads:
        chain = DecodeChain(model, num_rows, 320)
        weights = sum(n * k for n, k in model.linears.values()) * model.layers
        weights += model.vocab * model.hidden
        floor = round(weights * 2 / BANDWIDTH * 1e3, 3)
        expected = chain.step(False, False)
        for name, variant in variants.items():
            took = timed(lambda v, chain=chain: graph_time(lambda: chain.step(*v), 1000), variant)
            if took is None:
                continue
            same = int((chain.step(*variant) == expected).sum())
            rows.append([model.name, num_rows, name, round(took, 3), floor, same])
            say(
                f"chain {model.name} M={num_rows} {name:10s} {took:7.3f} ms, floor {floor:6.3f}, "
                f"same tokens {same}/{num_rows}"
            )
        del chain
        torch.cuda.empty_cache()
    return {"table": rows}


# --- driver -------------------------------------------------------------------------------------


def timed(fn, case):
    try:
        return fn(case)
    except Exception as error:  # a configuration too large for the device is a result too
        say("failed", case, repr(error)[:160])
        torch.cuda.synchronize()
        return None


def guarded(task) -> str | None:
    fn, case = task
    try:
        fn(case)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except Exception as error:
        return f"{case}: {error!r}"[:200]
    return None


def warm(pool, fn, cases: list) -> None:
    for failure in pool.imap_unordered(guarded, [(fn, case) for case in cases]):
        if failure:
            say("compile failed", failure)


def facts() -> dict:
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "bandwidth": BANDWIDTH,
    }


def read_bandwidth() -> float:
    x = torch.empty(2 * 1024**3, dtype=BF16, device="cuda").normal_()
    view = x.view(8192, -1)
    took = graph_time(lambda: torch.sum(view, dim=1, dtype=torch.float32), 1)
    return round(x.numel() * 2 / took / 1e3, 1)


def main() -> None:
    path, *sections = sys.argv[1:]
    sections = sections or [
        "gemm",
        "invariant",
        "attention",
        "shared",
        "chain",
        "small",
        "sampling",
    ]
    # Fork before this process has touched CUDA.
    context = multiprocessing.get_context("fork")
    workers = max(min((os.cpu_count() or 2) - 2, 14), 1)
    results: dict = {}
    with context.Pool(workers) as pool:
        results["facts"] = facts()
        say(results["facts"])
        for section in sections:
            if section == "gemm":
                results["gemm"] = gemm_section(pool)
            elif section == "invariant":
                results["invariant"] = invariant_section(pool)
            elif section == "attention":
                results["attention"] = attention_section(pool)
            elif section == "shared":
                results["shared"] = shared_section()
            elif section == "small":
                results["small"] = small_section(pool)
            elif section == "sampling":
                results["sampling"] = sampling_section(pool)
            elif section == "chain":
                weight_pool.cache_clear()
                torch.cuda.empty_cache()
                results["chain"] = chain_section(pool)
            with open(path, "w") as file:
                json.dump(results, file, indent=1)
            say(section, "done")
        say("read GB/s", read_bandwidth())


if __name__ == "__main__":
    main()
