"""The engine: requests in, token streams out, with the core in this process or its own."""
