"""Layers that models are made of; each runs the kernels it was built with."""
