"""HiddenStatesCollector: chunks put together, positions told twice taken once."""

from __future__ import annotations

import numpy as np

from octavo.engine.hidden_states import HiddenStatesCollector
from octavo.types.engine_output import HiddenStatesChunk
from octavo.types.pooling_outputs import PooledTensor
from octavo.types.sampling_extras import HiddenStatesParams

ALL = np.arange(2 * 20 * 3, dtype=np.float32).reshape(2, 20, 3)


def _chunk(start: int, stop: int) -> HiddenStatesChunk:
    return HiddenStatesChunk(start, PooledTensor.of(np.ascontiguousarray(ALL[:, start:stop])))


def test_chunks_become_one_array() -> None:
    collector = HiddenStatesCollector(HiddenStatesParams(layers=[0, -1], positions="all"))
    for start, stop in ((0, 4), (4, 5), (5, 9)):
        collector.add(_chunk(start, stop))
    found = collector.result(20)
    assert found is not None
    assert found.layers == [0, -1]
    assert found.first_position == 0
    np.testing.assert_array_equal(found.states, ALL[:, :9])


def test_what_is_computed_again_is_told_once() -> None:
    collector = HiddenStatesCollector(HiddenStatesParams(positions="output"))
    for start, stop in ((6, 7), (7, 8), (6, 8), (6, 11), (11, 12)):
        collector.add(_chunk(start, stop))
    found = collector.result(20)
    assert found is not None
    assert found.first_position == 6
    np.testing.assert_array_equal(found.states, ALL[:, 6:12])


def test_tokens_after_a_stop_string_are_cut_off() -> None:
    collector = HiddenStatesCollector(HiddenStatesParams(positions="all"))
    collector.add(_chunk(0, 10))
    found = collector.result(7)
    assert found is not None
    assert found.states.shape[1] == 7


def test_nothing_told_is_none() -> None:
    assert HiddenStatesCollector(HiddenStatesParams()).result(5) is None
