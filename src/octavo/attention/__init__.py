"""Attention over the paged KV cache: the interface, its registry and the backends."""
