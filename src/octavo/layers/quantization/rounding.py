"""Float weights to codes with a scale per group: rounding to the nearest, nothing calibrated."""

from __future__ import annotations

import torch

from octavo.checkpoints.group_codes import INT4, INT8, GroupCodes

_INT8_WIDEST, _INT4_WIDEST = 127, 15


def round_to_int8(weight: torch.Tensor) -> GroupCodes:
    """weight[N, K] -> codes -127..127, symmetric: the widest weight of a group has 127."""
    groups = torch.unflatten(weight.float(), -1, (-1, INT8.group))
    scale = groups.abs().amax(-1, keepdim=True) / _INT8_WIDEST
    codes = (groups / scale.where(scale > 0, 1.0)).round_().to(torch.int8)
    return GroupCodes(INT8, codes.flatten(-2).numpy(), scale.squeeze(-1).numpy())


def round_to_int4(weight: torch.Tensor) -> GroupCodes:
    """weight[N, K] -> codes 0..15, from the least weight of a group to the greatest."""
    groups = torch.unflatten(weight.float(), -1, (-1, INT4.group))
    least, most = groups.aminmax(dim=-1, keepdim=True)
    scale = (most - least) / _INT4_WIDEST
    codes = ((groups - least) / scale.where(scale > 0, 1.0)).round_().to(torch.uint8)
    return GroupCodes(
        INT4, codes.flatten(-2).numpy(), scale.squeeze(-1).numpy(), least.squeeze(-1).numpy()
    )
