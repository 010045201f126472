"""From a model's files, or from nothing, to a model ready to run."""
