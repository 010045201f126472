"""Libraries that grammars are compiled with, one file each."""
