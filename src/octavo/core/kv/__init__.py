"""KV-cache bookkeeping: blocks, prefix cache, groups of layers, and the layout of the cache."""
