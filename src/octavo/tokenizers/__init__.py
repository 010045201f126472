"""Text to token ids and back, over the `tokenizers` package."""
