"""Measurements: a running server under load, and the engine offline."""
