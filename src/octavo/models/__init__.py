"""Model architectures, one file each, over shared parts."""
