"""From logits to tokens: per-request parameters on the device, batched over the rows of a step."""
