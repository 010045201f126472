"""Time SmolLM2-135M's linear layers on the CPU in float32, several ways.

    PYTHONPATH=src python benchmarks/cpu_linear.py [threads]

30 decoder layers and the output projection, weights [N, K]; milliseconds per step for M rows, the
best of several runs, and the tokens per second that the products alone would allow. Every way
multiplies in float32.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from octavo.kernels.reference.gemm import prepare_linear

SHAPES = [(960, 576), (576, 576), (3072, 576), (576, 1536)]
HEAD = (49152, 576)
NUM_LAYERS = 30
Product = Callable[[torch.Tensor], torch.Tensor]


def transposed(weight: torch.Tensor) -> Product:
    stored = weight.t().contiguous()
    return lambda x: torch.mm(x, stored)


WAYS: dict[str, Callable[[torch.Tensor], Product]] = {
    "F.linear": lambda weight: lambda x: F.linear(x, weight),
    "x @ W^T stored transposed": transposed,
    "(W @ x^T)^T": lambda weight: lambda x: torch.mm(weight, x.t()).t(),
    "octavo": lambda weight: prepare_linear(weight, None),
}


def best(body: Callable[[], object], runs: int = 7) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        body()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(way: str, weights: list[torch.Tensor], rows: int) -> None:
    products = [WAYS[way](weight) for weight in weights]
    inputs = {k: torch.randn(rows, k) for _, k in [*SHAPES, HEAD]}

    def step() -> None:
        for weight, product in zip(weights, products, strict=True):
            product(inputs[weight.shape[1]])

    step()
    took = best(step)
    print(f"{way:26} M={rows:4}: {took * 1e3:7.1f} ms, {rows / took:6.1f} tok/s")


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    torch.set_grad_enabled(False)
    weights = [torch.randn(shape) * 0.02 for shape in [*SHAPES * NUM_LAYERS, HEAD]]
    for rows in (1, 2, 4, 8, 16, 32, 64, 128, 512):
        for way in WAYS:
            measure(way, weights, rows)


if __name__ == "__main__":
    main()
