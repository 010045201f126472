"""Staging: order, bits and limits of what travels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from octavo.sampling.staging import Staging
from support.sampling_requests import CPU


def test_staging_keeps_order_and_bits() -> None:
    staging = Staging(CPU)
    got = []
    staging.put([1, -2], lambda part: got.append(part.tolist()))
    staging.put(np.array([0.5, -1.5], np.float32), lambda p: got.append(p.view(torch.float32)))
    staging.put([], lambda part: got.append(part.numel()))
    staging.put(np.array([[7, 8], [9, 10]], np.int32), lambda part: got.append(part.tolist()))
    assert got == []
    staging.flush()
    assert got[0] == [1, -2]
    assert got[1].tolist() == [0.5, -1.5]
    assert got[2:] == [0, [7, 8, 9, 10]]
    staging.flush()
    assert len(got) == 4


def test_staging_refuses_what_needs_more_bits() -> None:
    staging = Staging(CPU)
    with pytest.raises(OverflowError):
        staging.put([1 << 31], lambda part: None)
