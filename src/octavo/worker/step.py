"""StepPlan: the host's view of a step's rows; StepResult: what the device made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from octavo.sampling.interface import RowValues
from octavo.sampling.logprob_tensors import LogprobTensors
from octavo.types.sampling_params import SamplingParams
from octavo.types.scheduler_output import NewRequestData, SchedulerOutput

Int32Array = npt.NDArray[np.int32]
IntArray = npt.NDArray[np.integer]


class StepShape(NamedTuple):
    """How long a step's tensors are: rows, tokens, and samples (rows followed by sampling)."""

    rows: int
    tokens: int
    samples: int


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A SchedulerOutput with the arithmetic every part needs: R rows, T tokens, S samples."""

    work: SchedulerOutput
    query_start_loc: Int32Array  # [R + 1]
    seq_lens: Int32Array  # [R], this step included; optimistic where drafts are in flight
    sample_rows: list[int]  # [S] rows followed by sampling, in order
    max_query_len: int
    max_seq_len: int

    @classmethod
    def of(cls, work: SchedulerOutput) -> StepPlan:
        """The plan of a step the scheduler has chosen."""
        lengths = np.array(work.num_scheduled_tokens, dtype=np.int32)
        query_start_loc = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(lengths, out=query_start_loc[1:])
        seq_lens = np.array(work.num_computed_tokens, dtype=np.int32) + lengths
        return cls(
            work=work,
            query_start_loc=query_start_loc,
            seq_lens=seq_lens,
            sample_rows=[row for row, samples in enumerate(work.samples) if samples],
            max_query_len=int(lengths.max()),
            max_seq_len=int(seq_lens.max()),
        )

    @classmethod
    def dummy(cls, num_tokens: int, num_rows: int) -> StepPlan:
        """A step over made-up requests of about equal length; see made_up."""
        least, more = divmod(num_tokens, num_rows)
        return cls.made_up([least + (row < more) for row in range(num_rows)])

    @classmethod
    def made_up(cls, lengths: Sequence[int]) -> StepPlan:
        """A step over made-up requests, for profiling and warm-up; row r takes slot r.

        Its block tables are empty, so it reads and writes the null block only. All its rows
        sample. `release(plan)` gives the slots back.
        """
        num_rows = len(lengths)
        new = [
            NewRequestData(
                slot=row,
                request_id=f"dummy-{row}",
                token_ids=[0] * length,
                num_prompt_tokens=length,
                num_computed_tokens=0,
                block_ids=[],
                sampling_params=SamplingParams(temperature=0.0),
                seed=0,
            )
            for row, length in enumerate(lengths)
        ]
        return cls.of(
            SchedulerOutput(
                step_id=-1,
                new_requests=new,
                slots=list(range(num_rows)),
                num_computed_tokens=[0] * num_rows,
                num_scheduled_tokens=list(lengths),
                samples=[True] * num_rows,
                total_num_scheduled_tokens=sum(lengths),
            )
        )

    @classmethod
    def padding(cls, num_rows: int, num_tokens: int, max_seq_len: int) -> StepPlan:
        """A step without real rows: what a graph is captured from.

        Its host arrays are the upper bounds that any replay stays within: one-token rows, and if
        there are more tokens than rows one long row that takes the rest. It touches no slot but
        the padding one, so it can run between the steps of live requests.
        """
        lengths = np.ones(num_rows, dtype=np.int32)
        lengths[-1] += num_tokens - num_rows
        query_start_loc = np.zeros(num_rows + 1, dtype=np.int32)
        np.cumsum(lengths, out=query_start_loc[1:])
        return cls(
            work=SchedulerOutput(step_id=-1, num_decode_rows=num_rows),
            query_start_loc=query_start_loc,
            seq_lens=np.full(num_rows, max_seq_len, dtype=np.int32),
            sample_rows=[],
            max_query_len=int(lengths[-1]),
            max_seq_len=max_seq_len,
        )

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.work.slots)

    @property
    def num_tokens(self) -> int:
        """T."""
        return int(self.query_start_loc[self.num_rows])

    @property
    def shape(self) -> StepShape:
        """The lengths of the step's tensors without padding."""
        return StepShape(self.num_rows, self.num_tokens, len(self.sample_rows))

    @property
    def plain_decode(self) -> bool:
        """Whether every row is one token, the slot's last sampled one, followed by sampling."""
        work = self.work
        one_each = self.num_tokens == work.num_decode_rows == len(self.sample_rows)
        return one_each and not work.forced_token_ids


class PooledRows(NamedTuple):
    """Results of rows that were pooled alike."""

    rows: list[int]
    values: torch.Tensor  # [len(rows), ...] float32


class HiddenRow(NamedTuple):
    """Hidden states that a row's request asked for."""

    row: int
    first_position: int
    states: torch.Tensor  # [layers, positions, H] float32


@dataclass(slots=True)
class StepResult:
    """What the head made of a step, on the device; S rows are followed by sampling."""

    token_ids: torch.Tensor  # [>= S] int64
    nan_rows: torch.Tensor | None = None  # [>= S] bool: the logits can't be sampled from
    logprobs: LogprobTensors | None = None  # entries by index in sample_rows
    prompt_logprobs: dict[int, LogprobTensors] = field(default_factory=dict)  # by row
    row_errors: dict[int, str] = field(default_factory=dict)  # by row
    pooled: list[PooledRows] = field(default_factory=list)
    hidden_states: list[HiddenRow] = field(default_factory=list)
    mirostat_mu: list[RowValues] = field(default_factory=list)  # by index in sample_rows
