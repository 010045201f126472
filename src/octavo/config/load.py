"""LoadConfig: where weights come from and in which form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.config.options import option


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """What may be asked about loading."""

    load_format: Literal[
        "auto", "hf", "safetensors", "pt", "mistral", "sharded_state", "gguf", "dummy"
    ] = option(
        "auto",
        "Form of the weights. auto (or hf): what the model's folder holds, safetensors first. pt: "
        "PyTorch's .bin and .pt, read without running their pickles. mistral: "
        "consolidated*.safetensors. sharded_state: what LLM.save_sharded_state wrote. dummy: "
        "random weights, only the configuration is read.",
    )
    download_dir: str | None = option(
        None, "Folder for files from the hub; by default the Hugging Face cache."
    )
    ignore_patterns: tuple[str, ...] = option(
        ("original/**/*",), "Files of a hub repository that are not fetched (glob patterns)."
    )


@dataclass(frozen=True, kw_only=True)
class LoadConfig(LoadOptions):
    """How the weights are loaded."""
