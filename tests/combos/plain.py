"""PlainModel: the slow and obvious way from a request to its tokens, which every engine must equal.

One sequence at a time, everything computed anew for each token: transformers' logits, a sampler in
NumPy, stop conditions read off the documentation.
"""

from __future__ import annotations

from collections.abc import Sequence as List

import msgspec
import numpy as np
import tokenizers
import torch
import transformers

from combos.answers import Answer, Position, Sequence
from combos.requests import Work
from octavo.engine.parallel_sampling import derive_seed
from octavo.types.sampling_params import DRY_BREAKERS, MAX_SEED, SamplingParams
from support.sampling_oracle import OracleRow, hash_tokens, sample_row, uniform


class PlainModel:
    """A model of transformers with a tokenizer; logits are remembered by the tokens before."""

    def __init__(
        self,
        model: transformers.PreTrainedModel,
        tokenizer: tokenizers.Tokenizer,
        eos_token_ids: List[int],
        max_model_len: int,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._eos_token_ids = list(eos_token_ids)
        self._max_model_len = max_model_len
        self._known: dict[tuple[int, ...], np.ndarray] = {}

    @torch.inference_mode()
    def all_logits(self, tokens: List[int]) -> torch.Tensor:
        """[len(tokens), V]."""
        return self.model(torch.tensor([list(tokens)])).logits[0].float()

    def logits(self, tokens: List[int]) -> np.ndarray:
        """[V] after the last of `tokens`."""
        key = tuple(tokens)
        if key not in self._known:
            self._known[key] = self.all_logits(tokens)[-1].numpy()
        return self._known[key]

    def answer(self, work: Work) -> Answer:
        """What must come of a request."""
        params = msgspec.structs.replace(
            work.params,
            eos_token_ids=self._eos_token_ids,
            bad_words_token_ids=self._spellings(work.params.bad_words or []),
            dry_breaker_ids=self._breakers(work.params),
        )
        prompt = self.prompt_ids(work)
        sequences = []
        for index in range(params.n):
            # Greedy rows draw nothing; any seed will do.
            seed = derive_seed((params.seed or 0) & MAX_SEED, index)
            sequences.append(self._generate(prompt, params, seed))
        scores = None
        if params.prompt_logprobs is not None:
            scores = self._prompt_logprobs(prompt, params.prompt_logprobs)
        failed = any(made.finish_reason == "error" for made in sequences)
        return Answer(work.name, sequences, scores, "no token can be chosen" if failed else None)

    def prompt_ids(self, work: Work) -> list[int]:
        """The prompt's tokens."""
        is_text = isinstance(work.prompt, str)
        tokens = self.tokenizer.encode(work.prompt).ids if is_text else list(work.prompt)
        return tokens[-(work.params.truncate_prompt_tokens or len(tokens)) :]

    def _generate(self, prompt: list[int], params: SamplingParams, seed: int) -> Sequence:
        room = self._max_model_len - len(prompt)
        limit = room if params.max_tokens is None else min(params.max_tokens, room)
        made = Sequence([], "", "length", logprobs=None if params.logprobs is None else [])
        mu = None
        while len(made.token_ids) < limit:
            raw = self.logits(prompt + made.token_ids)
            row = sample_row(raw, params, prompt, made.token_ids, seed, mu)
            mu = row.mu
            if row.dead:
                made.finish_reason = "error"
                break
            made.gaps.append(_gap(row, params, seed, len(prompt) + len(made.token_ids)))
            made.token_ids.append(row.token)
            if made.logprobs is not None:
                made.logprobs.append(_score(raw, row.token, params.logprobs or 0))
            if self._ends(made, params):
                break
        return made

    def _ends(self, made: Sequence, params: SamplingParams) -> bool:
        """Whether the newest token is the last; fills in text and reasons."""
        token = made.token_ids[-1]
        is_eos = token in self._eos_token_ids and not params.ignore_eos
        is_stop = is_eos or token in (params.stop_token_ids or ())
        shown = made.token_ids
        if is_stop and not params.include_stop_str_in_output:
            shown = shown[:-1]
        before, made.text = self._text(made.token_ids[:-1], params), self._text(shown, params)
        if len(made.token_ids) > params.min_tokens:
            # A stop string that this token's text completes.
            ends = [
                (end, -len(stop), stop)
                for stop in params.stop_strings
                for end in _ends_of(stop, made.text)
                if end > len(before.rstrip("\ufffd"))
            ]
            if ends:
                end, _, stop = min(ends)
                keep = end if params.include_stop_str_in_output else end - len(stop)
                made.text, made.finish_reason, made.stop_reason = made.text[:keep], "stop", stop
                return True
        if is_stop:
            made.finish_reason, made.stop_reason = "stop", None if is_eos else token
        elif _loops(made.token_ids, params):
            made.finish_reason = "repetition"
            return True
        return is_stop

    def _text(self, tokens: list[int], params: SamplingParams) -> str:
        if not params.detokenize:
            return ""
        return self.tokenizer.decode(tokens, skip_special_tokens=params.skip_special_tokens)

    def _spellings(self, words: List[str]) -> list[list[int]]:
        """A bad word's tokens at the start of a text and after a blank."""
        texts = [text for word in words for text in (word, f" {word}")]
        return [self.tokenizer.encode(text, add_special_tokens=False).ids for text in texts]

    def _breakers(self, params: SamplingParams) -> list[int]:
        """The tokens whose text holds a breaker, and the last one of each breaker's own."""
        texts = params.dry_sequence_breakers
        found = set()
        for text in DRY_BREAKERS if texts is None else texts:
            found.add(self.tokenizer.encode(text, add_special_tokens=False).ids[-1])
            for token in range(self.tokenizer.get_vocab_size()):
                if text in self.tokenizer.decode([token], skip_special_tokens=False):
                    found.add(token)
        return sorted(found)

    def _prompt_logprobs(self, prompt: list[int], num_top: int) -> list[Position | None]:
        logits = self.all_logits(prompt).numpy()
        scores = [_score(row, token, num_top) for row, token in zip(logits, prompt[1:])]  # noqa: B905
        return [None, *scores]


def _loops(tokens: list[int], params: SamplingParams) -> bool:
    """Whether the outputs end with a loop."""
    wanted = params.repetition_detection
    if wanted is None or len(tokens) < params.min_tokens:
        return False
    for size in range(max(wanted.min_pattern_size, 1), wanted.max_pattern_size + 1):
        length = size * wanted.min_count
        if len(tokens) >= length and tokens[-length:] == tokens[-size:] * wanted.min_count:
            return True
    return False


def _gap(row: OracleRow, params: SamplingParams, seed: int, position: int) -> float:
    """How far behind the chosen token the next one came."""
    scores = row.processed.astype(np.float64)
    if not params.greedy:
        race = uniform(hash_tokens(seed, position, len(scores))).astype(np.float64)
        scores = scores - np.log(-np.log1p(-race))
    best, second = np.sort(scores)[:-3:-1]
    return float(best - second)


def _score(raw: np.ndarray, token: int, num_top: int) -> Position:
    """The token and the `num_top` likeliest."""
    values = torch.from_numpy(raw).log_softmax(0).numpy()
    order = np.argsort(-values, kind="stable").tolist()
    return {t: (float(values[t]), order.index(t) + 1) for t in [token, *order[:num_top]]}


def _ends_of(stop: str, text: str) -> list[int]:
    return [end for end in range(len(stop), len(text) + 1) if text[:end].endswith(stop)]
