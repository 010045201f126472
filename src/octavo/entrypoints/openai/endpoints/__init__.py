"""One file per family of HTTP endpoints."""
