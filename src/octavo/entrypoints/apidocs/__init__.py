"""The page at /docs: what the API is, with nothing loaded from elsewhere."""
