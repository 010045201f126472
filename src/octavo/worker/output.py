"""AsyncOutput: a step's results on their way to the host; LateOutput: one sampled later."""

from __future__ import annotations

import numpy as np
import torch

from octavo.platforms.interface import Platform
from octavo.types.engine_output import HiddenStatesChunk
from octavo.types.pooling_outputs import PooledTensor
from octavo.types.runner_output import ModelRunnerOutput
from octavo.worker.step import StepPlan, StepResult

_NAN_ERROR = (
    "the model's output for this request is not a number (NaN or infinite logits), or no token is "
    "left that may be chosen"
)
_NAN_STATES = "the model's output for this request is not a number (NaN or infinite states)"


class AsyncOutput:
    """The copy of a step's results to the host runs on a side stream; `result` waits for it."""

    def __init__(self, plan: StepPlan, result: StepResult, platform: Platform) -> None:
        self._plan = plan
        self._platform = platform
        self._row_errors = result.row_errors
        count = len(plan.sample_rows)
        with platform.copy_stream():
            self._tokens = self._to_host(result.token_ids[:count])
            self._nan_rows = None
            if result.nan_rows is not None:
                self._nan_rows = self._to_host(result.nan_rows[:count])
            self._logprobs = result.logprobs.map(self._to_host) if result.logprobs else None
            self._prompt_logprobs = {
                row: tensors.map(self._to_host) for row, tensors in result.prompt_logprobs.items()
            }
            self._hidden_states = [
                part._replace(states=self._to_host(part.states)) for part in result.hidden_states
            ]
            self._mirostat_mu = [
                (part.rows, self._to_host(part.values)) for part in result.mirostat_mu
            ]
            self._pooled = [(rows, self._to_host(values)) for rows, values in result.pooled]
            self._event = platform.record_event()
        # The device's tensors must outlive the copies.
        self._source = result

    def _to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        host = self._platform.host_buffer(tuple(tensor.shape), tensor.dtype)
        return host.copy_(tensor, non_blocking=True)

    def result(self) -> ModelRunnerOutput:
        """Wait for the step and give its results, row by row of the plan."""
        self._event.synchronize()
        plan = self._plan
        sample_rows = plan.sample_rows
        sampled: list[list[int]] = [[] for _ in range(plan.num_rows)]
        for row, token in zip(sample_rows, self._tokens.tolist(), strict=True):
            sampled[row] = [token]
        errors = dict(self._row_errors)
        if self._nan_rows is not None:
            for index in self._nan_rows.nonzero().flatten().tolist():
                errors.setdefault(sample_rows[index], _NAN_ERROR)
        logprobs = self._logprobs.to_lists() if self._logprobs else {}
        pooled: dict[int, PooledTensor] = {}
        for rows, values in self._pooled:
            for row, result in zip(rows, values.numpy(), strict=True):
                if np.isfinite(result).all():
                    pooled[row] = PooledTensor.of(result)
                else:
                    errors[row] = _NAN_STATES
        return ModelRunnerOutput(
            step_id=plan.work.step_id,
            sampled_token_ids=sampled,
            logprobs={sample_rows[index]: [entry] for index, entry in logprobs.items()},
            prompt_logprobs={
                row: [entry for _, entry in sorted(tensors.to_lists().items())]
                for row, tensors in self._prompt_logprobs.items()
            },
            errors=errors,
            pooled=pooled,
            hidden_states={
                row: HiddenStatesChunk(first_position, PooledTensor.of(states.numpy()))
                for row, first_position, states in self._hidden_states
            },
            mirostat_mu={
                sample_rows[index]: mu
                for rows, values in self._mirostat_mu
                for index, mu in zip(rows, values.tolist(), strict=True)
            },
        )


class LateOutput:
    """The results of a step whose sampling waits for masks; `sampled` is set when they came."""

    def __init__(self) -> None:
        self.sampled: AsyncOutput | None = None

    def result(self) -> ModelRunnerOutput:
        """See AsyncOutput."""
        assert self.sampled is not None, "a step with grammar rows needs sample_tokens"
        return self.sampled.result()
