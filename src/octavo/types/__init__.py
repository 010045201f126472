"""Plain data that crosses packages and processes: no behaviour beyond validation, no torch."""
