"""The chat page: static files served at the root of the HTTP server."""
