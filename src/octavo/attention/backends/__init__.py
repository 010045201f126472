"""Attention backends, one per file; none imports another."""
