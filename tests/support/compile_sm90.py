"""Compile Triton kernels for sm_90a without a GPU and print what came out, a line per variant.

Run as a program with the names of parts (none: all), for it replaces Triton's driver. The kernels'
own wrappers are called on CPU tensors, so the variants are those a GPU would get; launches end when
the code is there.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from octavo.kernels import activation, embedding, inputs, norm, penalties, rotary_cache, sample
from octavo.kernels.chunk_attention import Chunk, chunk_attention
from octavo.kernels.decode_map import build_decode_map, decode_config
from octavo.kernels.draw import draw
from octavo.kernels.invariant_attention import invariant_attention
from octavo.kernels.invariant_gemm import invariant_gemm, invariant_tile
from octavo.kernels.invariant_map import build_invariant_map, invariant_config
from octavo.kernels.paged_decode import paged_decode
from octavo.kernels.paged_prefill import build_prefill_map, paged_prefill, prefill_config
from octavo.kernels.slot_tables import NUM_FEATURES, NUM_WORDS, SlotTables
from octavo.kernels.stream_gemm import MAX_TILES, GemmConfig, GemvConfig, stream_gemm
from octavo.kernels.stream_gemm_table import measured_configs
from octavo.kernels.token_masks import keep_masked
from octavo.kernels.top_logprobs import top_logprobs

BF16 = torch.bfloat16
MULTIPROCESSORS = 132  # of an H200
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
INSTRUCTIONS = ("HGMMA", "HMMA", "LDGSTS", "LDL", "STL", "ACQBULK")


class _NoDevice:
    """The part of a Triton driver that compiling needs."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def _report(name: str, kernel) -> dict:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [TOOLS / "cuobjdump", "--dump-resource-usage", "--dump-sass", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    assert found is not None
    return {
        "kernel": name,
        "registers": int(found[1]),
        "stack": int(found[2]),
        "shared": kernel.metadata.shared,
        "target": re.search(r"\.target (\w+)", kernel.asm["ptx"])[1],
        **{op: len(re.findall(rf"\b{op}", text)) for op in INSTRUCTIONS},
    }


def _zeros(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def _small_kernels() -> None:
    x, weight = _zeros(4, 4096), _zeros(4096)
    norm.rms_norm(x, weight, 1e-6, pdl=True)
    norm.fused_add_rms_norm(x, _zeros(4, 4096), weight, 1e-6, pdl=True)
    activation.silu_and_mul(_zeros(4, 24576), pdl=True)
    embedding.embedding(_zeros(4, dtype=torch.int32), _zeros(8, 4096), pdl=True)
    kv = _zeros(4, 2, 2, 8, 16, 128)[:, 1]
    for tokens in (4, 300):
        at = _zeros(tokens, dtype=torch.int64)
        rest = (1e-6, _zeros(8, 128, dtype=torch.float32), at, at, kv, 128, True)
        qkv = _zeros(tokens, 6144)
        rotary_cache.qk_norm_rope_cache(qkv, weight[:128], weight[:128], *rest, pdl=True)
    ints, longs = _zeros(5, dtype=torch.int32), _zeros(4, dtype=torch.int64)
    inputs.staged_write(ints, ints, ints)
    inputs.token_inputs(ints, ints, ints, longs, ints, ints)
    table = _zeros(5, 64, dtype=torch.int32)
    inputs.slot_mapping(longs, ints[:4], longs, table, 16)
    inputs.commit(longs, ints, longs, longs, ints, ints)


def _sampling_kernels() -> None:
    vocab, int32, int64, float32 = 151936, torch.int32, torch.int64, torch.float32
    ids, values = _zeros(4, 16, dtype=int64), _zeros(4, 16, dtype=float32)
    tables = SlotTables(
        params=_zeros(5, NUM_WORDS, dtype=int32),
        features=_zeros(5, NUM_FEATURES, dtype=int32),
        seen=_zeros(4, vocab, dtype=int32),
        penalties=_zeros(4, 4, dtype=float32),
        allowed=_zeros(4, vocab, dtype=torch.bool),
        bias_ids=ids,
        bias_values=values,
        min_tokens_ids=ids,
        min_tokens=ids[:, :1],
    )
    slots, positions = _zeros(4, dtype=int64), _zeros(4, dtype=int32)
    for dtype in (BF16, float32):
        logits = _zeros(4, vocab, dtype=dtype)
        sample.greedy(logits)
        sample.greedy_checked(logits)
        keep_masked(logits, slots, _zeros(4, vocab // 32, dtype=int32))
        for edits in (False, True):
            draw(logits, slots, positions, tables, edits=edits)
        for normalize in (False, True):
            top_logprobs(logits, slots, 5, normalize)
    penalties.apply_penalties(logits, slots, tables.seen, slots, tables.penalties, None)
    penalties.count_outputs(slots, slots, tables)


def _attention_kernels() -> None:
    start_loc, seq_lens = _zeros(5, dtype=torch.int32), _zeros(4, dtype=torch.int32)
    slots, table = _zeros(4, dtype=torch.int64), _zeros(4, 64, dtype=torch.int32)
    for num_heads, num_kv_heads, head_size, query_len in [
        (32, 8, 128, 1),
        (16, 8, 128, 1),
        (32, 8, 128, 4),
        (32, 8, 64, 16),
        (8, 1, 256, 2),
    ]:
        kv = _zeros(4, 2, 2, num_kv_heads, 16, head_size)[:, 1]
        q = _zeros(4, num_heads, head_size)
        heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
        decode_map = build_decode_map(
            start_loc,
            seq_lens,
            slots,
            table,
            block_size=16,
            head_size=head_size,
            max_query_len=query_len,
            window=0,
            config=decode_config(head_size, 2, query_len * num_heads // num_kv_heads),
            **heads,
        )
        paged_decode(q, kv, q.clone(), start_loc, decode_map, scale=1.0)
        for num_rows in (4, 256):  # with the tiles for some rows and for many
            rows = _zeros(num_rows + 1, dtype=torch.int32)
            shared_map = build_decode_map(
                rows,
                rows[1:],
                _zeros(num_rows, dtype=torch.int64),
                table,
                block_size=16,
                head_size=head_size,
                max_query_len=query_len,
                window=0,
                config=decode_config(
                    head_size,
                    2,
                    query_len * num_heads // num_kv_heads,
                    num_rows=num_rows,
                    group=num_heads // num_kv_heads,
                ),
                shared_rows=(rows[1:], rows[1:]),
                **heads,
            )
            paged_decode(q, kv, q.clone(), rows, shared_map, scale=1.0)
        invariant_map = build_invariant_map(
            start_loc,
            seq_lens,
            slots,
            num_tokens=4,
            head_size=head_size,
            window=0,
            config=invariant_config(head_size, 2),
            **heads,
        )
        invariant_attention(q, kv, q.clone(), table, invariant_map, scale=1.0)
        prefill_map = build_prefill_map(
            start_loc,
            seq_lens,
            slots,
            num_tokens=4,
            min_query_len=2,
            max_query_len=1 << 30,
            config=prefill_config(head_size, 2),
            **heads,
        )
        paged_prefill(q, kv, q.clone(), table, prefill_map, scale=1.0)


def _chunk_kernels() -> None:
    kv = _zeros(40, 2, 2, 8, 16, 128)[:, 1]
    q, table = _zeros(100, 32, 128), _zeros(4, 64, dtype=torch.int32)

    def attention(q, k, v, is_causal, scale):
        return q, q[..., 0].float()

    chunk_attention(
        q,
        kv,
        q.clone(),
        _zeros(4, dtype=torch.int64),
        table,
        Chunk(0, 0, 100, 500, 128),
        scale=1.0,
        attention=attention,
    )


def _gemm_kernels() -> None:
    arrivals = _zeros(MAX_TILES, dtype=torch.int32)
    shapes: dict[GemvConfig | GemmConfig, tuple[int, int, int]] = {}
    for num_rows, num_out, inner, config in measured_configs():
        shapes.setdefault(config, (num_rows, num_out, inner))
    for config, (num_rows, _, inner) in shapes.items():
        weight = _zeros(256, inner)
        stream_gemm(_zeros(num_rows, inner), weight, None, config, arrivals, pdl=True)


def _invariant_kernels() -> None:
    for num_out, inner in [(6144, 4096), (4096, 12288), (1024, 2048), (1000, 200)]:
        weight = _zeros(num_out, inner)
        for num_rows in (1, 32, 64, 65, 200, 4096):
            config = invariant_tile(num_rows, num_out, inner, 2, MULTIPROCESSORS)
            invariant_gemm(_zeros(num_rows, inner), weight, None, config, pdl=True)
    x, weight = _zeros(40, 512, dtype=torch.float32), _zeros(64, 512, dtype=torch.float32)
    invariant_gemm(x, weight, None, invariant_tile(40, 64, 512, 4, MULTIPROCESSORS))


PARTS = {
    "small": _small_kernels,
    "sampling": _sampling_kernels,
    "attention": _attention_kernels,
    "chunk": _chunk_kernels,
    "gemm": _gemm_kernels,
    "invariant": _invariant_kernels,
}


def main() -> None:
    driver.set_active(_NoDevice())
    run = JITFunction.run
    seen: list[tuple[str, object]] = []

    def compile_only(self, *args, grid, warmup, **kwargs):
        seen.append((self.__name__, run(self, *args, grid=grid, warmup=True, **kwargs)))

    JITFunction.run = compile_only
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
    reported = set()
    for name, kernel in seen:
        if kernel.hash not in reported:
            reported.add(kernel.hash)
            print(json.dumps(_report(name, kernel)), flush=True)


if __name__ == "__main__":
    main()
