"""Small helpers that any package may use; they import nothing of octavo."""
