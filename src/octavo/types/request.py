"""EngineCoreRequest: what a front end sends to the engine core for one sequence."""

from __future__ import annotations

import msgspec

from octavo.types.engine_output import FinishReason
from octavo.types.pooling_params import PoolingParams
from octavo.types.sampling_params import SamplingParams


class LoRARequest(msgspec.Struct, array_like=True, omit_defaults=True, frozen=True):
    """The adapter a request runs with."""

    lora_name: str
    lora_int_id: int
    lora_path: str


class MediaSpan(msgspec.Struct, array_like=True, frozen=True):
    """Tokens that stand for an image, audio or video, in whose place its embeddings go.

    Their ids are the same whatever is shown, so the prefix cache tells media apart by `key`, which
    is equal exactly for equal content.
    """

    start: int  # index of the first token
    length: int  # tokens
    key: str


class EngineCoreRequest(msgspec.Struct, array_like=True, omit_defaults=True):
    """One sequence to run; everything needed to start it, or to resume it after a restart.

    `token_ids` holds the prompt and, when a request is replayed, the tokens already produced;
    `num_prompt_tokens` is the boundary. `seed` is always set by the front end, so that a replayed
    request draws the same noise at the same positions.
    """

    request_id: str
    token_ids: list[int]
    num_prompt_tokens: int
    sampling_params: SamplingParams
    seed: int
    arrival_time: float  # seconds, time.time() of the front end
    max_tokens: int  # resolved: never None, prompt + max_tokens <= max_model_len
    client_index: int = 0
    priority: int = 0  # lower runs first
    cache_salt: str | None = None
    lora_request: LoRARequest | None = None
    trace_headers: dict[str, str] | None = None
    # Set for a request that is pooled: it computes its prompt, with max_tokens == 0.
    pooling_params: PoolingParams | None = None
    media: tuple[MediaSpan, ...] = ()  # of the prompt, in their order


class FinishRequest(msgspec.Struct, array_like=True, omit_defaults=True):
    """A finish decided in the front end (stop string, abort), at a known number of output tokens.

    `num_output_tokens` is None for an abort: whatever has been produced is dropped.
    """

    request_id: str
    reason: FinishReason
    num_output_tokens: int | None = None
