"""The OpenAI-compatible HTTP server: requests in, engine streams out; torch is never imported."""
