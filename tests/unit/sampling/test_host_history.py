"""HostHistory: what the host reads of the tokens on the device."""

from __future__ import annotations

import torch

from octavo.sampling.history import TokenHistory
from octavo.sampling.host_history import HostHistory
from octavo.sampling.row_filters import RowSubset, filter_rows
from octavo.sampling.staging import Staging
from octavo.types.sampling_params import SamplingParams
from octavo.types.scheduler_output import NewRequestData
from support.sampling_requests import CPU, Sequence, make_rows


def _new(prompt: list[int], outputs: list[int]) -> NewRequestData:
    return Sequence(SamplingParams(), prompt, 0, outputs).as_new(0)


def _subset(history: TokenHistory, slots: list[int]) -> RowSubset:
    subset = filter_rows(slots, [history.users], CPU)[0]
    assert subset is not None
    return subset


def test_host_reads_only_what_is_new() -> None:
    staging = Staging(CPU)
    table = TokenHistory(8, staging)
    host = HostHistory(table)
    host.keep(0, _new([1, 2], [3]))
    host.keep(1, _new([1], []))
    staging.flush()
    rows = make_rows([1, 0], [1, 3])
    assert host.read(rows, _subset(table, [1, 0])) == [[], [3]]
    table.commit(rows, _subset(table, [1, 0]), torch.tensor([7, 4]))
    rows = make_rows([0], [4])
    table.commit(rows, _subset(table, [0]), torch.tensor([5]))
    table.tokens[:, 0] = -1  # prompts and known outputs are not read again
    rows = make_rows([0, 1], [5, 2])
    assert host.read(rows, _subset(table, [0, 1])) == [[3, 4, 5], [7]]
    outputs = host.read(rows, _subset(table, [0, 1]))
    outputs[0].clear()
    assert host.read(rows, _subset(table, [0, 1])) == [[3, 4, 5], [7]]
