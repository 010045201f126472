"""The tokenizer that a configuration names."""

from __future__ import annotations

from octavo.checkpoints.locate import find_model
from octavo.config.octavo_config import OctavoConfig
from octavo.tokenizers.tokenizer import Tokenizer, load_tokenizer


def model_tokenizer(config: OctavoConfig) -> Tokenizer | None:
    """Read it; None if the engine runs without one. Raises CheckpointError."""
    model = config.model
    if model.skip_tokenizer_init:
        return None
    name = model.tokenizer or model.model
    revision = model.tokenizer_revision if model.tokenizer else model.revision
    files = find_model(name, revision, config.load.download_dir, weights=False)
    return load_tokenizer(files)
