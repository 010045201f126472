"""LogitsProcessor plug-ins: loading, the per-request form."""

from __future__ import annotations

import pytest
import torch

from octavo.sampling.processors import LogitsProcessor, PerRequestProcessor, load_processors
from octavo.types.errors import ConfigError
from octavo.types.sampling_params import SamplingParams
from support.sampling_requests import Driver, Sequence, make_state

VOCAB = 16


class Forbid(PerRequestProcessor):
    """Bars what the outputs already hold; `extra_args` {"fail_at": n} raises after n outputs."""

    def new_request(self, params):
        extra = params.extra_args or {}
        if "forbid" not in extra:
            return None

        def edit(output_token_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            assert all(0 <= token < VOCAB for token in output_token_ids)
            if len(output_token_ids) == extra.get("fail_at"):
                raise KeyError("no luck")
            logits[output_token_ids] = -torch.inf
            return logits

        return edit


def _params(**extra) -> SamplingParams:
    return SamplingParams(temperature=0.0, extra_args=extra or None)


def _driver() -> Driver:
    return Driver(make_state(VOCAB, logits_processors=[Forbid]))


def test_a_function_sees_every_output_so_far() -> None:
    driver = _driver()
    driver.add(0, Sequence(_params(forbid=True), [0, 1], 0))
    driver.add(1, Sequence(_params(), [0], 0))
    driver.add(2, Sequence(_params(forbid=True), [5] * 7, 0, outputs=[1, 2]))
    for order in ([0, 1, 2], [2, 1, 0], [1, 2], [0, 2]):
        driver.step(order, torch.zeros(len(order), VOCAB))
    assert driver.live[0].outputs == [0, 1, 2]
    assert driver.live[1].outputs == [0, 0, 0]
    assert driver.live[2].outputs == [1, 2, 0, 3, 4, 5]


def test_history_survives_a_preemption() -> None:
    driver = _driver()
    driver.add(0, Sequence(_params(forbid=True), [3], 0))
    for _ in range(3):
        driver.step([0], torch.zeros(1, VOCAB))
    driver.preempt(0, 9)
    for _ in range(3):
        driver.step([9], torch.zeros(1, VOCAB))
    assert driver.live[9].outputs == [0, 1, 2, 3, 4, 5]


def test_an_exception_ends_its_row_alone() -> None:
    driver = _driver()
    driver.add(0, Sequence(_params(forbid=True, fail_at=1), [0], 0))
    driver.add(1, Sequence(_params(forbid=True), [0], 0))
    assert driver.step([0, 1], torch.zeros(2, VOCAB)).row_errors == {}
    output = driver.step([1, 0], torch.zeros(2, VOCAB))
    assert output.row_errors == {1: "logits processor Forbid failed: KeyError: 'no luck'"}
    assert output.token_ids[0] == 1


def test_a_wrong_row_is_an_error_of_its_row() -> None:
    class Short(PerRequestProcessor):
        def new_request(self, params):
            return (lambda _, logits: logits[:3]) if params.extra_args else lambda _, row: row + 1

    driver = Driver(make_state(VOCAB, logits_processors=[Short]))
    driver.add(0, Sequence(_params(x=1), [0], 0))
    driver.add(1, Sequence(_params(), [0], 0))
    output = driver.step([0, 1], torch.eye(VOCAB)[:2])
    assert list(output.row_errors) == [0]
    assert output.token_ids[1] == 1


def test_load_by_name() -> None:
    assert load_processors(["octavo.sampling.processors:PerRequestProcessor"]) == [
        PerRequestProcessor
    ]
    assert load_processors([]) == []


@pytest.mark.parametrize(
    "name",
    [
        "octavo.no_such_module:X",
        "octavo.sampling.processors:NoSuchClass",
        "octavo.sampling.processors",
        ":X",
        "octavo.sampling.processors:load_processors",
        "octavo.sampling.sampler:Sampler",
    ],
)
def test_a_name_that_gives_no_processor_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="logits_processors holds"):
        load_processors([name])


def test_validate_accepts_by_default() -> None:
    assert LogitsProcessor.validate(SamplingParams()) is None
