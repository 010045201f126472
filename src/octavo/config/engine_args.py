"""EngineArgs: every start-up parameter of the engine, and the way from them to a config."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.checkpoints.locate import find_model
from octavo.checkpoints.model_files import ModelFiles
from octavo.checkpoints.sentence_transformers import sentence_files
from octavo.checkpoints.vocabulary import token_ids
from octavo.config import hf
from octavo.config.defaults import Usage
from octavo.config.engine_options import EngineOptions
from octavo.config.files import code_folder
from octavo.config.octavo_config import OctavoConfig
from octavo.config.resolve import ModelFacts, resolve
from octavo.config.token_scores import scoring_tokens
from octavo.platforms.detect import detect_platform
from octavo.types.errors import ConfigError
from octavo.types.platform_info import PlatformInfo
from octavo.utils.logging import get_logger

logger = get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class EngineArgs(EngineOptions):
    """Start-up parameters with vLLM's names; each has a flag of the same name.

    `EngineArgs(model="Qwen/Qwen3-0.6B", max_model_len="4k").create_engine_config()`.
    """

    def create_engine_config(
        self,
        platform: PlatformInfo | None = None,
        usage: Usage = "llm",
        *,
        weights: bool = True,
    ) -> OctavoConfig:
        """Find the model, read its small files, resolve, and log every choice with its reason.

        `platform` is detected when it is None; with `weights` false a model on the hub is not
        downloaded beyond its small files. Raises ConfigError or CheckpointError.
        """
        if platform is None:
            platform = detect_platform(None if self.device == "auto" else self.device)
        files = self.find_model(weights=weights)
        facts = ModelFacts(
            hf_config=files.config(),
            generation_config=self._generation_config(files.generation_config()),
            kind=files.kind,
            sentence=sentence_files(files),
            token_ids=self._scoring_token_ids(files),
            code=code_folder(files),
        )
        config = resolve(self, platform, usage, facts=facts)
        for note in config.notes:
            logger.info(note)
        return config

    def find_model(self, *, weights: bool = True) -> ModelFiles:
        """The model's files on local disk. Raises CheckpointError."""
        return find_model(
            self.model,
            self.revision,
            self.download_dir,
            ignore_patterns=self.ignore_patterns,
            weights=weights and self.load_format != "dummy",
            load_format=self.load_format,
            config_format=self.config_format,
            trust_remote_code=self.trust_remote_code,
        )

    def _scoring_token_ids(self, files: ModelFiles) -> dict[str, int]:
        """Ids of the tokens whose logits are the model's scores, if any are."""
        tokens = scoring_tokens(hf.merge(files.config(), self.hf_overrides))
        if not tokens:
            return {}
        if self.tokenizer is not None:
            revision, folder = self.tokenizer_revision, self.download_dir
            files = find_model(
                self.tokenizer,
                revision,
                folder,
                weights=False,
                trust_remote_code=self.trust_remote_code,
            )
        return token_ids(files.tokenizer_json(), tokens)

    def _generation_config(self, of_model: dict[str, Any]) -> dict[str, Any]:
        if self.generation_config in ("auto", "vllm"):
            return of_model
        path = Path(self.generation_config)
        path = path / "generation_config.json" if path.is_dir() else path
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"generation_config={self.generation_config!r}: can't read {path} ({error}); give "
                "a folder with generation_config.json, or auto or vllm"
            ) from None
        if not isinstance(values, dict):
            raise ConfigError(f"generation_config={self.generation_config!r} is no JSON object")
        return values
