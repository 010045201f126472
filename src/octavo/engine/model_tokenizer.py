"""The tokenizer that a configuration names."""

from __future__ import annotations

from octavo.config.files import tokenizer_files
from octavo.config.octavo_config import OctavoConfig
from octavo.tokenizers.tokenizer import Tokenizer, load_tokenizer


def model_tokenizer(config: OctavoConfig) -> Tokenizer | None:
    """Read it; None if the engine runs without one. Raises CheckpointError."""
    if config.model.skip_tokenizer_init:
        return None
    return load_tokenizer(tokenizer_files(config))
