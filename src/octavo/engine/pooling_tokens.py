"""PoolingTokens: texts and pairs of texts -> tokens, cut to a length with their ends in place."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.octavo_config import OctavoConfig
from octavo.config.pooler import PairTemplate
from octavo.engine.input_processor import MAX_CHARS_PER_TOKEN
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.errors import RequestError


@dataclass(frozen=True, slots=True)
class PoolingPrompt:
    """What is pooled; `second_at` is where the tokens of a pair's second text begin."""

    token_ids: list[int]
    text: str | None = None
    second_at: int | None = None


class PoolingTokens:
    """Tokenizes for one model. Safe to share between threads.

    What is too long is refused, unless `keep` says how many tokens to keep, special ones included
    (-1: as many as the model takes): then a text loses its end, and of a pair first the longer
    text does.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        max_model_len: int,
        *,
        lower_case: bool,
        template: PairTemplate | None = None,
    ) -> None:
        """`template` makes one text of a pair."""
        self._template = template
        self._tokenizer = tokenizer
        self._max_model_len = max_model_len
        self._lower_case = lower_case

    @classmethod
    def of(cls, config: OctavoConfig, tokenizer: Tokenizer | None) -> PoolingTokens:
        """For a configured model."""
        pooler = config.model.pooler
        return cls(
            tokenizer,
            config.model.max_model_len,
            lower_case=pooler is not None and pooler.lower_case,
            template=None if pooler is None else pooler.pair_template,
        )

    def text(
        self,
        text: str,
        *,
        keep: int | None = None,
        add_special_tokens: bool = True,
        param: str = "prompt",
    ) -> PoolingPrompt:
        """The tokens of a text. Raises RequestError that names `param`."""
        limit = self._limit(keep)
        tokenizer = self._tokenizer_for(param)
        ids = tokenizer.encode(self._bounded(text, keep, param), add_special_tokens)
        if keep is not None and len(ids) > limit:
            begin, end = tokenizer.affixes if add_special_tokens else ([], [])
            room = max(limit - len(begin) - len(end), 0)
            inner = ids[len(begin) : len(ids) - len(end)]
            ids = [*begin, *inner[:room], *end][:limit]
        return PoolingPrompt(ids, text)

    def pair(
        self, first: str, second: str, *, keep: int | None = None, param: str = "prompt"
    ) -> PoolingPrompt:
        """The tokens of two texts as the model was trained to see them together.

        Raises RequestError that names `param`.
        """
        limit = None if keep is None else self._limit(keep)
        first, second = self._bounded(first, keep, param), self._bounded(second, keep, param)
        tokenizer = self._tokenizer_for(param)
        template = self._template
        if template is not None and not template.begins(first):
            return PoolingPrompt(_filled(tokenizer, template, first, second, limit))
        ids, second_at = tokenizer.encode_pair(first, second, limit)
        return PoolingPrompt(ids, None, second_at)

    def ids(self, token_ids: list[int], *, keep: int | None = None) -> PoolingPrompt:
        """Token ids that are there already, cut like a text without special tokens."""
        return PoolingPrompt(token_ids if keep is None else token_ids[: self._limit(keep)])

    def _tokenizer_for(self, param: str) -> Tokenizer:
        if self._tokenizer is None:
            raise RequestError(
                "this engine has no tokenizer (--skip-tokenizer-init); send token ids", param
            )
        return self._tokenizer

    def _limit(self, keep: int | None) -> int:
        if keep is None or keep == -1:
            return self._max_model_len
        if keep > self._max_model_len:
            raise RequestError(
                f"truncate_prompt_tokens={keep} is above max_model_len={self._max_model_len}",
                "truncate_prompt_tokens",
            )
        return keep

    def _bounded(self, text: str, keep: int | None, param: str) -> str:
        """A text that is not too long to be tokenized, in the case the model reads."""
        limit = MAX_CHARS_PER_TOKEN * self._max_model_len
        if len(text) > limit:
            if keep is None:
                raise RequestError(
                    f"{param} has {len(text)} characters; at most {limit} are tokenized for a "
                    f"model of max_model_len={self._max_model_len}; shorten it or set "
                    "truncate_prompt_tokens",
                    param,
                )
            text = text[:limit]
        return text.lower() if self._lower_case else text


def _filled(
    tokenizer: Tokenizer, template: PairTemplate, first: str, second: str, limit: int | None
) -> list[int]:
    """The tokens of a template with two texts in it; to stay within `limit` the second is cut."""
    start = template.before + first + template.between + second
    ids = tokenizer.encode(start + template.after)
    if limit is None or len(ids) <= limit:
        return ids
    begin, end = tokenizer.affixes
    tail = [*tokenizer.encode(template.after, add_special_tokens=False), *end]
    kept = [*begin, *tokenizer.encode(start, add_special_tokens=False)]
    return [*kept[: max(limit - len(tail), 0)], *tail][:limit]
