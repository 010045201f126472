"""Reasoning in a model's answer: how each family marks it, and where an answer begins."""
