"""What the offline benchmarks share: the engine's flags beside their own, and random prompts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

from octavo.config.convert import convert
from octavo.config.engine_options import engine_options
from octavo.config.flags import FlagParser, add_flags
from octavo.config.options import options_of
from octavo.config.sources import add_model_and_config, parse_options
from octavo.entrypoints.llm import LLM
from octavo.types.errors import ConfigError

T = TypeVar("T")


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


def random_prompts(llm: LLM, lengths: Sequence[int], rng: random.Random) -> list[list[int]]:
    """Prompts of random ordinary tokens. Raises ConfigError if the model is too short for one."""
    model = llm.config.model
    if max(lengths) >= model.max_model_len:
        raise ConfigError(
            f"input_len={max(lengths)} leaves no room for an answer (max_model_len="
            f"{model.max_model_len}); ask for shorter prompts"
        )
    special = frozenset() if model.skip_tokenizer_init else llm.get_tokenizer().all_special_ids
    pool = [token for token in range(model.vocab_size) if token not in special]
    return [rng.choices(pool, k=length) for length in lengths]
