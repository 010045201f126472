"""What the offline benchmarks share: their frame, the engine's flags beside their own, prompts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from octavo.bench.report import save
from octavo.config.convert import convert
from octavo.config.engine_options import engine_options
from octavo.config.flags import FlagParser, add_flags
from octavo.config.model import ModelConfig
from octavo.config.options import option, options_of
from octavo.config.sources import add_model_and_config, parse_options
from octavo.entrypoints.llm import LLM
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class OfflineOptions:
    """What every benchmark of batches given at once takes."""

    input_len: int = option(1024, "Tokens of each prompt.", low=1, high=10**7)
    output_len: int = option(128, "Tokens of each answer.", low=1, high=10**7)
    output_json: str | None = option(None, "File for the figures.")
    disable_tqdm: bool = option(False, "Show no progress.")


T = TypeVar("T")
OptionsT = TypeVar("OptionsT", bound=OfflineOptions)


def run(
    argv: Sequence[str],
    kind: type[OptionsT],
    command: tuple[str, str],
    measure: Callable[[LLM, OptionsT], dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
) -> int:
    """Start the engine that the flags describe, measure it, show and save the figures.

    `command`: the program's name and what it does, for its help.
    """
    engine, options = parse(argv, kind, *command)
    llm = LLM(**engine)
    try:
        figures = measure(llm, options)
    finally:
        llm.shutdown()
    show(figures)
    if options.output_json is not None:
        model = llm.config.model.served_model_name[0]
        save({"model_id": model, **vars(options), **figures}, Path(options.output_json))
    return 0


def parse(
    argv: Sequence[str], kind: type[T], prog: str, description: str
) -> tuple[dict[str, Any], T]:
    """(keyword arguments of LLM, options of the benchmark). Raises ConfigError."""
    own, engine = options_of(kind, "benchmark"), engine_options()
    parser = FlagParser(prog, description)
    add_model_and_config(parser)
    add_flags(parser, own, sections=False)
    add_flags(parser, engine, sections=True)
    values, _ = parse_options(parser, argv, own | engine)
    options = kind(**{name: convert(own[name], values[name]) for name in values if name in own})
    return {name: value for name, value in values.items() if name in engine}, options


class RandomPrompts:
    """Prompts of random ordinary tokens of a model."""

    def __init__(self, model: ModelConfig, tokenizer: Tokenizer | None) -> None:
        special = frozenset() if tokenizer is None else tokenizer.all_special_ids
        self._pool = [token for token in range(model.vocab_size) if token not in special]
        self._max_model_len = model.max_model_len

    @classmethod
    def of(cls, llm: LLM) -> RandomPrompts:
        """For an engine, whether or not it has a tokenizer."""
        model = llm.config.model
        return cls(model, None if model.skip_tokenizer_init else llm.get_tokenizer())

    def make(self, lengths: Sequence[int], rng: random.Random) -> list[list[int]]:
        """One prompt per length. Raises ConfigError if the model is too short for one."""
        if max(lengths) >= self._max_model_len:
            raise ConfigError(
                f"input_len={max(lengths)} leaves no room for an answer (max_model_len="
                f"{self._max_model_len}); ask for shorter prompts"
            )
        return [rng.choices(self._pool, k=length) for length in lengths]
