"""Float weights to codes with a scale per group: rounding to the nearest, nothing calibrated."""

from __future__ import annotations

import torch

from octavo.checkpoints.group_codes import INT4, INT8, INT8_SYMMETRIC, INT8_WIDE, GroupCodes

_INT8_LEAST, _INT8_MOST, _INT4_WIDEST = -128, 127, 15
_MET = 1e-5  # of a group's greatest magnitude: what float32 leaves of codes that were met
_HALF_STEP = 2.0**-24  # least float16
# Greatest magnitudes of a row between which float16 scales and minimums cost it nothing.
_HALF_LEAST, _HALF_MOST = 2.0**-12, 2.0**15


def round_to_int8(weight: torch.Tensor) -> GroupCodes:
    """weight[N, K] -> codes -128..127, from the least weight of a group to the greatest.

    Scales and minimums are float16, or float32 if a row is too small or too large for that. Weights
    that symmetric codes meet (those of a Q8_0 file) get these.
    """
    groups = torch.unflatten(weight.float(), -1, (-1, INT8.group))
    least, most = groups.aminmax(dim=-1, keepdim=True)
    widest = torch.maximum(-least, most)
    scale = widest / _INT8_MOST
    codes = (groups / scale.where(scale > 0, 1.0)).round_()
    if bool(((codes * scale - groups).abs() <= _MET * widest).all()):
        packed = codes.to(torch.int8).flatten(-2).numpy()
        return GroupCodes(INT8_SYMMETRIC, packed, scale.squeeze(-1).numpy())
    rows = widest.flatten(1).amax(-1)
    fits = ((rows >= _HALF_LEAST) & (rows <= _HALF_MOST)) | (rows == 0)
    form, number, floor = INT8, torch.float16, _HALF_STEP
    if not bool(fits.all()):
        form, number, floor = INT8_WIDE, torch.float32, torch.finfo(torch.float32).tiny
    # Each is made from the rounded one before it, so that rounding them hardly adds to the error.
    middle = least - (most - least) * (_INT8_LEAST / (_INT8_MOST - _INT8_LEAST))
    minimum = middle.to(number)
    above, below = most - minimum.float(), least - minimum.float()
    scale = torch.maximum(above / _INT8_MOST, below / _INT8_LEAST).clamp(min=floor).to(number)
    codes = ((groups - minimum.float()) / scale.float()).round_()
    return GroupCodes(
        form,
        codes.clamp_(_INT8_LEAST, _INT8_MOST).to(torch.int8).flatten(-2).numpy(),
        scale.squeeze(-1).numpy(),
        minimum.squeeze(-1).numpy(),
    )


def round_to_int4(weight: torch.Tensor) -> GroupCodes:
    """weight[N, K] -> codes 0..15, from the least weight of a group to the greatest."""
    groups = torch.unflatten(weight.float(), -1, (-1, INT4.group))
    least, most = groups.aminmax(dim=-1, keepdim=True)
    scale = (most - least) / _INT4_WIDEST
    codes = ((groups - least) / scale.where(scale > 0, 1.0)).round_().to(torch.uint8)
    return GroupCodes(
        INT4, codes.flatten(-2).numpy(), scale.squeeze(-1).numpy(), least.squeeze(-1).numpy()
    )
