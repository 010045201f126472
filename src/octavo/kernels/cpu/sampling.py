"""The sampling functions of CPUs: the reference's, the most frequent one in C."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import torch

from octavo.kernels.cpu.library import native_library
from octavo.kernels.reference import sampling as reference


def cpu_sampling() -> SimpleNamespace | ModuleType:
    """SamplingKernels of the CPU, with C kernels where those can be compiled."""
    library = native_library()
    if library is None:
        return reference
    functions = {name: getattr(reference, name) for name in vars(reference)}
    functions.update(greedy_checked=native_greedy(library))
    return SimpleNamespace(**functions)


def native_greedy(
    library: ctypes.CDLL,
) -> Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """`greedy_checked` of the reference, in one pass over the logits."""

    def greedy_checked(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if logits.dtype != torch.float32 or logits.stride(1) != 1:
            return reference.greedy_checked(logits)
        num_rows, vocab_size = logits.shape
        token_ids = torch.empty(num_rows, dtype=torch.int64)
        library.octavo_greedy(
            logits.data_ptr(), logits.stride(0), token_ids.data_ptr(), num_rows, vocab_size
        )
        bad = token_ids < 0
        return token_ids.clamp_(min=0), bad

    return greedy_checked
