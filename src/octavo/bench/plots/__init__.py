"""Charts of benchmark results, as PNG files or as HTML pages that need nothing else."""
