"""What the sampling kernels share: the race's noise, and integers that order like floats."""

from __future__ import annotations

import triton
import triton.language as tl

# A product and a sum stay two roundings, as in the reference and alike in every kernel: the score
# of a token must not depend on which of them computed it.
NO_FUSION = {"enable_fp_fusion": False}


@triton.jit
def _mix(x):
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * 0x7FEB352D
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * -2073254261  # 0x846CA68B
    return x ^ ((x >> 16) & 0xFFFF)


@triton.jit
def row_keys(seed_low, seed_high, position):
    """The two noise keys (int32) of a row, as octavo.kernels.reference.sampling defines them."""
    key_1 = _mix(_mix(_mix(position + -1640531527) ^ seed_low) ^ seed_high)  # 0x9E3779B9
    key_2 = _mix(_mix(_mix(position + 0x3C6EF372) ^ seed_high) ^ seed_low)
    return key_1, key_2


@triton.jit
def log_exponential(key_1, key_2, token_ids):
    """log E of int32 tokens as octavo.kernels.reference.sampling defines it, float32."""
    x = (token_ids * -1640531535) ^ key_1  # 0x9E3779B1
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = ((x ^ (x >> 15)) ^ key_2) * -2073254261
    x = x ^ (x >> 16)
    v = (x.to(tl.float32) + 0.5) * 4.656612595521636e-10
    # log1p(-v) from log: the quotient undoes what rounding 1 - v did to v (W. Kahan).
    u = 1.0 - v
    exponential = tl.where(u == 1.0, v, tl.log(u) * v / tl.where(u == 1.0, -1.0, u - 1.0))
    return tl.log(exponential)


@triton.jit
def order_key(x):
    """float32 -> int32 of the same order; the two zeros are one."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(x == 0.0, 0, bits ^ ((bits >> 31) & 0x7FFFFFFF))


@triton.jit
def from_order_key(key):
    """The float32 whose key it is."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def pack(x, token_ids):
    """(float32, int32 id) -> int64 that is larger for a larger value, then for a lower id."""
    return (order_key(x).to(tl.int64) << 32) | (0x7FFFFFFF - token_ids).to(tl.int64)


@triton.jit
def unpack(packed):
    """The (float32, int32 id) of `pack`."""
    value = from_order_key((packed >> 32).to(tl.int32))
    return value, 0x7FFFFFFF - (packed & 0x7FFFFFFF).to(tl.int32)
