"""What users call: the offline LLM class and the HTTP server."""
