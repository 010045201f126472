"""Kernels of the CPU in C, compiled on the machine that runs them."""
