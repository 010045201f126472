"""TokenMasks: which tokens may come next in some rows of a step, told by the host."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from octavo.sampling.interface import SamplingKernels


@dataclass(frozen=True, slots=True)
class TokenMasks:
    """Packed masks on the device, made after the forward pass was launched.

    They bar tokens like stage 2 of docs/sampling.md, for tokens once barred stay so in every later
    stage.
    """

    index: Tensor  # [U] int64: rows among those that are sampled
    masks: Tensor  # [U, ceil(V / 32)] int32: bit t % 32 of word t // 32 is that of token t

    def apply(self, logits: Tensor, kernels: SamplingKernels) -> None:
        """Bar tokens in logits[R, V]."""
        kernels.keep_masked(logits, self.index, self.masks)
