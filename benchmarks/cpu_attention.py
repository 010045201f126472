"""Time attention of one layer on the CPU: the backend, and the alternatives it was chosen over.

    PYTHONPATH=src:tests python benchmarks/cpu_attention.py [threads]

SmolLM2-135M's heads (9 query, 3 KV, 64 wide), float32, blocks of 16, a cache of 8 layers so that
pages come from memory. Prints microseconds per layer, the best of several runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from octavo.attention.backends.torch_sdpa import TorchSDPA
from octavo.attention.interface import AttentionParams
from support.attention_steps import Step, make_setup, make_step

NUM_LAYERS = 8
PARAMS = AttentionParams(scale=64**-0.5, num_heads=9, num_kv_heads=3, head_size=64)


def best(body: Callable[[int], object], runs: int = 40) -> float:
    """Microseconds per layer of body(layer)."""
    times = []
    for _ in range(runs + 2):
        start = time.perf_counter()
        for layer in range(NUM_LAYERS):
            body(layer)
        times.append((time.perf_counter() - start) / NUM_LAYERS)
    return min(times[2:]) * 1e6


def decode_parts(backend: TorchSDPA, step: Step, layers: list[torch.Tensor]) -> str:
    """The gather, the products as the backend computes them, and by SDPA."""
    metadata = backend.build_metadata(step.batch)
    backend.forward(step.q, layers[0], metadata, PARAMS)
    (group,) = metadata.groups[None]
    keys, values = backend._gather(layers[0], group.pages)
    heads = step.q.reshape(-1, PARAMS.num_heads, 1, PARAMS.head_size)
    mask = group.mask[:, None]
    gather = best(lambda layer: backend._gather(layers[layer], group.pages))
    mine = best(lambda _: backend._decode(step.q, keys, values, group.mask, PARAMS.scale))
    sdpa = best(
        lambda _: F.scaled_dot_product_attention(heads, keys, values, mask, enable_gqa=True)
    )
    return f" (gather {gather:.0f}, products {mine:.0f}; with SDPA {sdpa:.0f})"


def measure(name: str, query_lens: list[int], seq_lens: list[int]) -> None:
    step = make_step(query_lens, seq_lens, PARAMS, 16, num_layers=NUM_LAYERS, poison=False)
    cache = step.kv
    page = 2 * PARAMS.num_kv_heads * 16 * PARAMS.head_size
    layers = [
        cache.as_strided(cache.shape, cache.stride(), index * page) for index in range(NUM_LAYERS)
    ]
    backend = TorchSDPA(make_setup(PARAMS, 16))
    metadata = backend.build_metadata(step.batch)
    took = best(lambda layer: backend.forward(step.q, layers[layer], metadata, PARAMS))
    plan = best(
        lambda layer: backend.forward(
            step.q, layers[layer], backend.build_metadata(step.batch), PARAMS
        )
    )
    parts = decode_parts(backend, step, layers) if max(query_lens) == 1 else ""
    print(
        f"{name:8} rows {len(query_lens):3} context {max(seq_lens):5}: {took:7.0f} us{parts}; "
        f"plan of a step {plan - took:.0f} us"
    )


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    torch.set_grad_enabled(False)
    for rows, context in [(1, 128), (1, 256), (1, 2048), (8, 256), (64, 128), (64, 256)]:
        measure("decode", [1] * rows, [context] * rows)
    measure("prefill", [128], [128])
    measure("prefill", [512], [512])
    measure("chunk", [256], [1024])
    measure("prefill", [128] * 8, [128] * 8)
    measure("mixed", [1] * 63 + [256], [200] * 63 + [256])


if __name__ == "__main__":
    main()
