"""Quantization methods, one per file; none imports another."""
