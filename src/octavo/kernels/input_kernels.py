"""InputKernels: the step-input kernels of one device, chosen when the runner is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from octavo.kernels.reference import inputs as reference
from octavo.utils.registry import Registry

Tensor = torch.Tensor


@dataclass(frozen=True, slots=True)
class InputKernels:
    """Signatures as in octavo.kernels.reference.inputs."""

    staged_write: Callable[[Tensor, Tensor, Tensor], None]
    token_inputs: Callable[
        [Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]
    ]
    slot_mapping: Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]
    commit: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], None]


def reference_input_kernels() -> InputKernels:
    """Plain PyTorch, for every device."""
    return InputKernels(
        staged_write=reference.staged_write,
        token_inputs=reference.token_inputs,
        slot_mapping=reference.slot_mapping,
        commit=reference.commit,
    )


INPUT_KERNELS: Registry[Callable[[], InputKernels]] = Registry(
    "input kernels",
    {
        "cpu": reference_input_kernels,
        "cuda": "octavo.kernels.triton_set:triton_input_kernels",
    },
)
