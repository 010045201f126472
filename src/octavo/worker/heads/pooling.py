"""PoolingHead: hidden states to embeddings or scores of the requests whose prompt is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from octavo.config.pooler import PoolerConfig, SeqPooling
from octavo.layers.pooler import finish_embeddings, finish_scores
from octavo.models.interfaces import PoolingModel
from octavo.sampling.interface import Variant
from octavo.sampling.token_masks import TokenMasks
from octavo.types.pooling_params import TOKEN_TASKS, PoolingParams, PoolingTask
from octavo.types.scheduler_output import NewRequestData
from octavo.worker.input_batch import InputBatch
from octavo.worker.step import PooledRows, StepPlan, StepResult


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a step that ask for the same."""

    rows: list[int]
    task: PoolingTask
    dimensions: int | None
    use_activation: bool


class PoolingHead:
    """Also the SlotState that keeps what it has seen of prompts that are computed in parts."""

    def __init__(self, model: PoolingModel, pooler: PoolerConfig) -> None:
        self._model = model
        self._pooler = pooler
        self._requests: dict[int, NewRequestData] = {}
        # By slot, of prompts not yet computed to their end: a sum or the first state [H], or the
        # states so far [n, H].
        self._partial: dict[int, torch.Tensor] = {}

    def add(self, slot: int, new: NewRequestData) -> None:
        """See SlotState."""
        self._requests[slot] = new
        self._partial.pop(slot, None)

    def remove(self, slot: int) -> None:
        """See SlotState."""
        self._requests.pop(slot, None)
        self._partial.pop(slot, None)

    def flush(self) -> None:
        """See SlotState."""

    def warm_up(self) -> None:
        """See Head."""

    def read(self, batch: InputBatch) -> torch.Tensor | None:
        """See Head."""
        return None

    def variant(self, plan: StepPlan) -> Variant:
        """See Head: rows differ in what they ask for, which the host knows."""
        return Variant.HOST

    def binding(self, variant: Variant) -> object:
        """See Head."""
        return None

    def account(self, plan: StepPlan, variant: Variant) -> None:
        """See Head."""

    def __call__(
        self,
        hidden: torch.Tensor,
        batch: InputBatch,
        variant: Variant,
        masks: TokenMasks | None = None,
    ) -> StepResult:
        """See Head."""
        plan = batch.plan
        # Only made-up requests are followed by sampling.
        tokens = torch.zeros_like(batch.logits_index)
        pooled: list[PooledRows] = []
        for group in self._groups(plan):
            if group.task in TOKEN_TASKS:
                pooled += self._pool_tokens(hidden, plan, group)
            elif (found := self._pool_texts(hidden, plan, group)) is not None:
                pooled.append(found)
        return StepResult(tokens, pooled=pooled)

    def _groups(self, plan: StepPlan) -> list[_Rows]:
        groups: dict[tuple[PoolingTask, int | None, bool], list[int]] = {}
        default = PoolingParams()
        pooler = self._pooler
        for row, slot in enumerate(plan.work.slots):
            params = self._requests[slot].pooling_params or default
            task = params.task or pooler.tasks[0]
            activate = params.use_activation
            key = (
                task,
                params.dimensions or (pooler.dimensions if pooler.head == "embed" else None),
                pooler.use_activation if activate is None else activate,
            )
            groups.setdefault(key, []).append(row)
        return [_Rows(rows, *key) for key, rows in groups.items()]

    def _pool_texts(self, hidden: torch.Tensor, plan: StepPlan, group: _Rows) -> PooledRows | None:
        """One vector for each row that has come to the end of its prompt."""
        rows = group.rows
        begins = plan.query_start_loc[:-1][rows].tolist()
        ends = plan.query_start_loc[1:][rows].tolist()
        vectors = _reduce(hidden, begins, ends, self._pooler.seq_pooling_type)
        done = [index for index, row in enumerate(rows) if self._is_done(plan, row)]
        if len(done) < len(rows) or any(self._slot(plan, row) in self._partial for row in rows):
            vectors = self._join_parts(vectors, plan, rows)
        if self._pooler.seq_pooling_type == "MEAN":
            lengths = plan.seq_lens[rows].tolist()
            vectors = vectors / vectors.new_tensor(lengths)[:, None]
        if not done:
            return None
        if len(done) < len(rows):
            vectors = vectors[done]
        result = self._finish(self._model.project(vectors), group)
        return PooledRows([rows[index] for index in done], result)

    def _join_parts(
        self, vectors: torch.Tensor, plan: StepPlan, rows: Sequence[int]
    ) -> torch.Tensor:
        """Take up what earlier steps saw of the same prompts, and keep it where more comes."""
        kind = self._pooler.seq_pooling_type
        if kind == "LAST":
            return vectors
        vectors = vectors.clone()
        for index, row in enumerate(rows):
            slot = self._slot(plan, row)
            before = self._partial.pop(slot, None)
            if before is not None:
                vectors[index] = before if kind == "CLS" else before + vectors[index]
            if not self._is_done(plan, row):
                self._partial[slot] = vectors[index].clone()
        return vectors

    def _pool_tokens(self, hidden: torch.Tensor, plan: StepPlan, group: _Rows) -> list[PooledRows]:
        """The states of every token, of rows that have come to the end of their prompt."""
        results = []
        for row in group.rows:
            begin, end = plan.query_start_loc[row], plan.query_start_loc[row + 1]
            slot = self._slot(plan, row)
            states = hidden[begin:end]
            before = self._partial.pop(slot, None)
            if before is not None:
                states = torch.cat([before, states])
            if not self._is_done(plan, row):
                self._partial[slot] = states.clone() if before is None else states
                continue
            states = self._chosen_steps(states, self._requests[slot])
            result = self._finish(self._model.project(states.float()), group)
            columns = self._columns(self._requests[slot])
            if columns is not None:
                result = result[:, columns]
            results.append(PooledRows([row], result[None]))
        return results

    def _chosen_steps(self, states: torch.Tensor, request: NewRequestData) -> torch.Tensor:
        params = request.pooling_params or PoolingParams()
        tag = self._pooler.step_tag_id if params.step_tag_id is None else params.step_tag_id
        if tag is None or (params.step_tag_id is None and self._pooler.tok_pooling_type == "ALL"):
            return states
        return states[[at for at, token in enumerate(request.token_ids) if token == tag]]

    def _columns(self, request: NewRequestData) -> list[int] | None:
        params = request.pooling_params or PoolingParams()
        chosen = params.returned_token_ids or self._pooler.returned_token_ids
        return None if chosen is None else list(chosen)

    def _finish(self, projected: torch.Tensor, group: _Rows) -> torch.Tensor:
        if self._pooler.head == "embed":
            return finish_embeddings(projected, group.dimensions, group.use_activation)
        return finish_scores(projected, self._pooler, group.use_activation)

    def _slot(self, plan: StepPlan, row: int) -> int:
        return plan.work.slots[row]

    def _is_done(self, plan: StepPlan, row: int) -> bool:
        request = self._requests[plan.work.slots[row]]
        return int(plan.seq_lens[row]) >= request.num_prompt_tokens


def _reduce(
    hidden: torch.Tensor, begins: list[int], ends: list[int], kind: SeqPooling
) -> torch.Tensor:
    """hidden[T, H], rows of tokens [begin, end) -> one vector per row, float32; MEAN: the sum."""
    if kind == "CLS":
        return hidden[begins].float()
    if kind == "LAST":
        return hidden[[end - 1 for end in ends]].float()
    sums = [
        hidden[begin:end].sum(dim=0, dtype=torch.float32)
        for begin, end in zip(begins, ends, strict=True)
    ]
    return torch.stack(sums)
