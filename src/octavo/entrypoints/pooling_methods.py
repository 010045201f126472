"""PoolingMethods: encode, embed, classify and score of LLM."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import msgspec
from tqdm import tqdm

from octavo.config.octavo_config import OctavoConfig
from octavo.engine.llm_engine import LLMEngine
from octavo.engine.pooling_state import PooledOutput
from octavo.engine.pooling_tokens import PoolingPrompt
from octavo.engine.prompts import Prompt, prompt_list
from octavo.entrypoints.scoring import cosine, pair_up
from octavo.types.errors import RequestError
from octavo.types.pooling_outputs import (
    ClassificationOutput,
    ClassificationRequestOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    PoolingRequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)
from octavo.types.pooling_params import PoolingParams, PoolingTask

Progress = bool | Callable[..., "tqdm[Any]"]
AnyPrompt = Prompt | PoolingPrompt

_SENT_TOGETHER = 64  # requests: the core begins while later texts are tokenized

Result = TypeVar("Result", EmbeddingOutput, ClassificationOutput, ScoringOutput)


class _Reader:
    """A PoolingReader that keeps what it gets."""

    def __init__(self) -> None:
        self.output: PooledOutput | None = None
        self.error: Exception | None = None

    def put(self, output: PooledOutput) -> None:
        self.output = output

    def fail(self, error: Exception) -> None:
        self.error = error

    @property
    def done(self) -> bool:
        return self.output is not None or self.error is not None


class PoolingMethods:
    """What LLM can do with a model that pools.

    A prompt is a text, a list of token ids, or a dict with `prompt`, `prompt_token_ids` or both.
    Every method raises RequestError if a prompt can't be served, GenerationError if one fails
    while it runs. `truncate_prompt_tokens` cuts long prompts at their end (-1: to what fits);
    without it they are refused.
    """

    _engine: LLMEngine
    _ids: itertools.count[int]

    @property
    def config(self) -> OctavoConfig:
        """Everything that was decided before the engine started."""
        return self._engine.config

    def encode(
        self,
        prompts: Prompt | Sequence[Prompt],
        pooling_params: PoolingParams | None = None,
        *,
        pooling_task: PoolingTask | None = None,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: Progress = True,
    ) -> list[PooledOutput]:
        """One result per prompt, in their order: arrays as the task makes them."""
        params = _params(pooling_params, pooling_task, truncate_prompt_tokens)
        return self._pool(prompt_list(prompts), params, use_tqdm)

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        pooling_params: PoolingParams | None = None,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: Progress = True,
    ) -> list[EmbeddingRequestOutput]:
        """A vector for each prompt."""
        outputs = self.encode(
            prompts,
            pooling_params,
            pooling_task="embed",
            truncate_prompt_tokens=truncate_prompt_tokens,
            use_tqdm=use_tqdm,
        )
        return [_with(each, EmbeddingOutput(each.outputs.data.tolist())) for each in outputs]

    def classify(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        pooling_params: PoolingParams | None = None,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: Progress = True,
    ) -> list[ClassificationRequestOutput]:
        """A score per label for each prompt."""
        outputs = self.encode(
            prompts,
            pooling_params,
            pooling_task="classify",
            truncate_prompt_tokens=truncate_prompt_tokens,
            use_tqdm=use_tqdm,
        )
        return [_with(each, ClassificationOutput(each.outputs.data.tolist())) for each in outputs]

    def score(
        self,
        data_1: str | Sequence[str],
        data_2: str | Sequence[str],
        /,
        *,
        pooling_params: PoolingParams | None = None,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: Progress = True,
    ) -> list[ScoringRequestOutput]:
        """How well texts go together: one with each of many, or as many one by one.

        A cross-encoder (a classifier of one label) reads both texts at once; of a model that makes
        embeddings it is the cosine of the two.
        """
        first, second = (
            [texts] if isinstance(texts, str) else list(texts) for texts in (data_1, data_2)
        )
        pairs = pair_up(first, second, ("data_1", "data_2"))
        pooler = self.config.model.pooler
        if pooler is None or not pooler.scores_pairs:
            return self._score_embeddings(
                first, second, len(pairs), pooling_params, truncate_prompt_tokens, use_tqdm
            )
        params = _params(pooling_params, "classify", truncate_prompt_tokens)
        tokens, keep = self._engine.pooling_tokens, params.truncate_prompt_tokens
        prompts = [tokens.pair(*pair, keep=keep, param="data_2") for pair in pairs]
        outputs = self._pool(prompts, params, use_tqdm)
        return [_with(each, ScoringOutput(float(each.outputs.data[0]))) for each in outputs]

    def _score_embeddings(
        self,
        first: list[str],
        second: list[str],
        count: int,
        pooling_params: PoolingParams | None,
        truncate_prompt_tokens: int | None,
        use_tqdm: Progress,
    ) -> list[ScoringRequestOutput]:
        params = _params(pooling_params, "embed", truncate_prompt_tokens)
        outputs = self._pool([*first, *second], params, use_tqdm)
        ours, theirs = outputs[: len(first)] * (count // len(first)), outputs[len(first) :]
        return [
            PoolingRequestOutput(
                request_id=theirs[index].request_id,
                outputs=ScoringOutput(cosine(ours[index].outputs.data, theirs[index].outputs.data)),
                prompt_token_ids=[*ours[index].prompt_token_ids, *theirs[index].prompt_token_ids],
                metrics=theirs[index].metrics,
            )
            for index in range(count)
        ]

    def _pool(
        self, prompts: Sequence[AnyPrompt], params: PoolingParams, use_tqdm: Progress
    ) -> list[PooledOutput]:
        ids = [str(next(self._ids)) for _ in prompts]
        readers = [_Reader() for _ in prompts]
        try:
            for begin in range(0, len(prompts), _SENT_TOGETHER):
                part = slice(begin, begin + _SENT_TOGETHER)
                requests = list(zip(ids[part], prompts[part], strict=True))
                self._engine.add_pooling_requests(requests, params, readers[part])
            self._wait(readers, use_tqdm)
        except BaseException:
            self._engine.abort_requests(ids)
            raise
        for reader in readers:
            if reader.error is not None:
                raise reader.error
        return [cast(PooledOutput, reader.output) for reader in readers]

    def _wait(self, readers: list[_Reader], use_tqdm: Progress) -> None:
        make_bar = use_tqdm if callable(use_tqdm) else tqdm
        bar = make_bar(total=len(readers), desc="prompts", disable=not use_tqdm, dynamic_ncols=True)
        with bar:
            waiting = readers
            while waiting:
                self._engine.step()
                left = [reader for reader in waiting if not reader.done]
                bar.update(len(waiting) - len(left))
                waiting = left


def _params(
    params: PoolingParams | None, task: PoolingTask | None, truncate: int | None
) -> PoolingParams:
    """A copy with the task and the truncation of a call. Raises RequestError for another task."""
    if params is None:
        params = PoolingParams()
    if not isinstance(params, PoolingParams):
        raise RequestError(
            f"pooling_params is {type(params).__name__}; give PoolingParams(...)", "pooling_params"
        )
    if task is not None and params.task not in (None, task):
        raise RequestError(f"task={params.task!r} in a call for {task!r}; leave it out", "task")
    return msgspec.structs.replace(
        params,
        task=task or params.task,
        truncate_prompt_tokens=(params.truncate_prompt_tokens if truncate is None else truncate),
    )


def _with(output: PooledOutput, result: Result) -> PoolingRequestOutput[Result]:
    """The same request with its result in another form."""
    return PoolingRequestOutput(
        request_id=output.request_id,
        outputs=result,
        prompt_token_ids=output.prompt_token_ids,
        num_cached_tokens=output.num_cached_tokens,
        metrics=output.metrics,
    )
