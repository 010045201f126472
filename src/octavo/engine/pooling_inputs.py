"""PoolingInputs: prompt and PoolingParams -> EngineCoreRequest, every number checked."""

from __future__ import annotations

import itertools
import time

import msgspec

from octavo.config.octavo_config import OctavoConfig
from octavo.config.pooler import PoolerConfig
from octavo.engine.pooling_tokens import PoolingPrompt, PoolingTokens
from octavo.engine.prompts import Prompt, parse_prompt
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.errors import RequestError
from octavo.types.pooling_params import SECOND_TEXT, TOKEN_TASKS, PoolingParams
from octavo.types.request import EngineCoreRequest
from octavo.types.sampling_params import SamplingParams


class PoolingInputs:
    """Admits requests to be pooled. Raises RequestError with the field at fault."""

    def __init__(
        self, config: OctavoConfig, tokenizer: Tokenizer | None, *, client_index: int = 0
    ) -> None:
        self._pooler = config.model.pooler
        self._vocab_size = config.model.vocab_size
        self._max_model_len = config.model.max_model_len
        self._marks_second = config.model.arch.is_encoder
        self._takes_priority = config.scheduler.scheduling_policy == "priority"
        self._id_prefix = f"{client_index}." if client_index else ""
        self._numbers = itertools.count()
        self.tokens = PoolingTokens.of(config, tokenizer)

    def prompt(self, prompt: Prompt | PoolingPrompt, params: PoolingParams) -> PoolingPrompt:
        """The tokens of a prompt in any of its forms."""
        if isinstance(prompt, PoolingPrompt):
            return prompt
        keep = params.truncate_prompt_tokens
        parsed = parse_prompt(prompt)
        if parsed.token_ids is not None:
            cut = self.tokens.ids(parsed.token_ids, keep=keep)
            return PoolingPrompt(cut.token_ids, parsed.text)
        return self.tokens.text(parsed.text or "", keep=keep)

    def make_request(
        self,
        request_id: str,
        prompt: PoolingPrompt,
        params: PoolingParams,
        *,
        arrival_time: float | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
        trace_headers: dict[str, str] | None = None,
    ) -> EngineCoreRequest:
        """The request as the core runs it, under an id of its own; `params` is not changed."""
        params = self._check_params(params)
        self._check_tokens(prompt.token_ids)
        if priority and not self._takes_priority:
            raise RequestError(
                f"priority={priority} needs --scheduling-policy priority; leave it at 0",
                "priority",
            )
        ids, second = prompt.token_ids, prompt.second_at
        if second is not None and self._marks_second:
            ids = ids[:second] + [token | SECOND_TEXT for token in ids[second:]]
        pooler = self._require_pooler()
        needs_all = params.task in TOKEN_TASKS or pooler.seq_pooling_type != "LAST"
        return EngineCoreRequest(
            request_id=f"{self._id_prefix}p{next(self._numbers)}:{request_id}",
            token_ids=ids,
            num_prompt_tokens=len(ids),
            sampling_params=SamplingParams(max_tokens=0, skip_reading_prefix_cache=needs_all),
            seed=0,
            arrival_time=time.time() if arrival_time is None else arrival_time,
            max_tokens=0,
            priority=priority,
            cache_salt=cache_salt,
            trace_headers=trace_headers,
            pooling_params=params,
        )

    def _require_pooler(self) -> PoolerConfig:
        if self._pooler is None:
            raise RequestError(
                "this model generates text; start the engine with --runner pooling to get "
                "embeddings or scores of it"
            )
        return self._pooler

    def _check_params(self, params: PoolingParams) -> PoolingParams:
        """A checked copy with its task filled in."""
        pooler = self._require_pooler()
        if not isinstance(params, PoolingParams):
            raise RequestError(
                f"pooling_params is {type(params).__name__}; give PoolingParams(...)"
            )
        values = {name: getattr(params, name) for name in PoolingParams.__struct_fields__}
        try:
            params = msgspec.convert(values, PoolingParams)
        except msgspec.ValidationError as error:
            raise RequestError(f"pooling_params: {error}") from None
        task = params.task or pooler.tasks[0]
        if task not in pooler.tasks:
            raise RequestError(
                f"task={task!r} is not what this model does; it does {' and '.join(pooler.tasks)}",
                "task",
            )
        if params.dimensions is not None:
            self._check_dimensions(pooler, params.dimensions)
        chosen = params.returned_token_ids
        if (params.step_tag_id is not None or chosen is not None) and task not in TOKEN_TASKS:
            raise RequestError(
                f"step_tag_id and returned_token_ids are for {' and '.join(TOKEN_TASKS)}",
                "returned_token_ids",
            )
        width = len(pooler.labels) or pooler.embedding_size
        if chosen is not None and not all(0 <= column < width for column in chosen):
            raise RequestError(
                f"returned_token_ids={chosen} has one outside [0, {width})", "returned_token_ids"
            )
        return msgspec.structs.replace(params, task=task)

    def _check_dimensions(self, pooler: PoolerConfig, dimensions: int) -> None:
        if pooler.head != "embed":
            raise RequestError("dimensions are for embeddings; leave them out", "dimensions")
        choices = pooler.matryoshka_dimensions
        if not pooler.matryoshka and dimensions != pooler.embedding_size:
            raise RequestError(
                f"dimensions={dimensions}: this model was not trained to have its embeddings cut "
                f"(its config says nothing of Matryoshka); leave it out or at "
                f"{pooler.embedding_size}",
                "dimensions",
            )
        if choices and dimensions not in choices and dimensions != pooler.embedding_size:
            raise RequestError(
                f"dimensions={dimensions} is none of {', '.join(map(str, choices))}", "dimensions"
            )
        if dimensions > pooler.embedding_size:
            raise RequestError(
                f"dimensions={dimensions} is above the {pooler.embedding_size} there are",
                "dimensions",
            )

    def _check_tokens(self, ids: list[int]) -> None:
        size, limit = self._vocab_size, self._max_model_len
        if not ids:
            raise RequestError("the prompt is empty: it has no tokens", "prompt")
        if len(ids) > limit:
            raise RequestError(
                f"the prompt has {len(ids)} tokens; at most {limit} fit (max_model_len={limit}); "
                "shorten it or set truncate_prompt_tokens",
                "prompt",
            )
        if min(ids) < 0 or max(ids) >= size:
            bad = next(token for token in ids if not 0 <= token < size)
            raise RequestError(f"prompt holds the token id {bad}, outside [0, {size})", "prompt")
