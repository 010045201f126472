"""Parts that several architectures share."""
