"""The files that a configuration names: the model's own, and those of its tokenizer."""

from __future__ import annotations

from pathlib import Path

from octavo.checkpoints.locate import find_model
from octavo.checkpoints.model_files import ModelFiles
from octavo.config.octavo_config import OctavoConfig


def model_files(config: OctavoConfig) -> ModelFiles:
    """Raises CheckpointError."""
    model, load = config.model, config.load
    return find_model(
        model.model,
        model.revision,
        load.download_dir,
        ignore_patterns=load.ignore_patterns,
        weights=load.load_format != "dummy",
        load_format=load.load_format,
        config_format=model.config_format,
        trust_remote_code=model.trust_remote_code,
    )


def code_folder(files: ModelFiles) -> Path | None:
    """The folder whose Python files may be run, or None."""
    return files.path if files.runs_code and files.path.is_dir() else None


def tokenizer_files(config: OctavoConfig) -> ModelFiles:
    """Raises CheckpointError."""
    model = config.model
    name = model.tokenizer or model.model
    revision = model.tokenizer_revision if model.tokenizer else model.revision
    return find_model(
        name,
        revision,
        config.load.download_dir,
        weights=False,
        trust_remote_code=model.trust_remote_code,
    )
