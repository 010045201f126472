"""Scheduling and KV-cache bookkeeping: which request computes which tokens in which step."""
