"""Where a model is and what its files say: configuration, tensor headers, raw tensors; no torch."""
