"""ModelRunnerOutput: what a step produced, row by row of its SchedulerOutput."""

from __future__ import annotations

import msgspec

from octavo.types.engine_output import HiddenStatesChunk, TokenLogprobs
from octavo.types.pooling_outputs import PooledTensor


class ModelRunnerOutput(msgspec.Struct, array_like=True, omit_defaults=True):
    """Results of step `step_id`; row indices are those of the SchedulerOutput."""

    step_id: int
    sampled_token_ids: list[list[int]] = []  # per row: [] where nothing was sampled
    logprobs: dict[int, list[TokenLogprobs]] = {}  # row -> one entry per sampled token
    # row -> logprobs of the prompt tokens that this step's rows predict
    prompt_logprobs: dict[int, list[TokenLogprobs]] = {}
    errors: dict[int, str] = {}  # row -> why its result can't be used (NaN logits, a plug-in)
    draft_token_ids: list[list[int]] | None = None  # per row: drafts for the next step
    pooled: dict[int, PooledTensor] = {}  # row -> result of a request whose prompt is computed
    hidden_states: dict[int, HiddenStatesChunk] = {}  # row -> those of its tokens
    mirostat_mu: dict[int, float] = {}  # row -> what the next token is truncated with
