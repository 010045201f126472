"""The kernel that bars tokens by packed masks, in Triton's interpreter, against the reference."""

from __future__ import annotations

import pytest
import torch

from support.interpreter import require_interpreter

require_interpreter()
from octavo.kernels.reference import sampling as reference  # noqa: E402
from octavo.kernels.token_masks import keep_masked  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("num_tokens", [1, 31, 32, 33, 5000])
def test_equals_the_reference(num_tokens, dtype):
    torch.manual_seed(num_tokens)
    # Rows of a wider tensor, as padded vocabularies give them.
    logits = torch.randn(5, num_tokens + 7).to(dtype)[:, :num_tokens]
    masks = torch.randint(-(1 << 31), (1 << 31) - 1, (3, (num_tokens + 31) // 32)).int()
    index = torch.tensor([4, 0, 2])
    expected = logits.clone()
    reference.keep_masked(expected, index, masks)
    ours = logits.clone()
    keep_masked(ours, index, masks)
    assert torch.equal(ours, expected)
    assert torch.equal(ours[[1, 3]], logits[[1, 3]])
