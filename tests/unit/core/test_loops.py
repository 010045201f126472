"""LoopDetector against the definition, token by token."""

from __future__ import annotations

import random

import pytest

from octavo.core.loops import LoopDetector
from octavo.types.errors import RequestError
from octavo.types.sampling_extras import RepetitionDetectionParams


def _ends_with_loop(tokens: list[int], params: RepetitionDetectionParams) -> bool:
    for size in range(max(params.min_pattern_size, 1), params.max_pattern_size + 1):
        length = size * params.min_count
        if len(tokens) >= length and tokens[-length:] == tokens[-size:] * params.min_count:
            return True
    return False


@pytest.mark.parametrize("seed", range(4))
def test_it_finds_what_the_definition_says(seed: int) -> None:
    rng = random.Random(seed)
    found = 0
    for _ in range(100):
        longest = rng.randint(1, 6)
        params = RepetitionDetectionParams(
            max_pattern_size=longest,
            min_pattern_size=rng.randint(0, longest),
            min_count=rng.randint(2, 4),
        )
        before = [rng.randrange(2) for _ in range(rng.randint(0, 10))]
        detector, tokens = LoopDetector(params, before), list(before)
        for _ in range(40):
            tokens.append(rng.randrange(rng.choice([1, 2, 3])))
            expected = _ends_with_loop(tokens, params)
            found += expected
            assert detector.add(tokens[-1]) == expected, (params, tokens)
    assert found > 100


def test_a_pattern_that_began_before_the_first_token_is_none() -> None:
    params = RepetitionDetectionParams(max_pattern_size=2, min_count=2)
    detector = LoopDetector(params)
    assert [detector.add(token) for token in (1, 2, 1, 2)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_pattern_size": -1}, "max_pattern_size"),
        ({"max_pattern_size": 5000}, "max_pattern_size"),
        ({"max_pattern_size": 2, "min_pattern_size": 3}, "min_pattern_size"),
        ({"max_pattern_size": 2, "min_count": 1}, "min_count"),
    ],
)
def test_what_can_be_no_loop_is_refused(fields: dict[str, int], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        RepetitionDetectionParams(**fields)
    assert caught.value.param == f"repetition_detection.{param}"
