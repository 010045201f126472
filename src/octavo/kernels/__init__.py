"""Compute kernels as pure functions of tensors, one set per kind of device."""
