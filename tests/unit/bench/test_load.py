"""Arrival times and the number of client processes."""

import itertools
import random
import statistics

import pytest

from octavo.bench.load import Ramp, arrival_offsets, choose_num_clients


@pytest.mark.parametrize("burstiness", [0.2, 1.0, 50.0])
def test_the_rate_is_met_and_times_go_up(burstiness):
    offsets = arrival_offsets(1001, 20.0, burstiness, random.Random(0))
    assert offsets[0] == 0.0
    assert offsets[-1] == pytest.approx(50.0)
    assert offsets == sorted(offsets)


def test_burstiness_sets_the_spread_of_the_gaps():
    def spread(burstiness):
        offsets = arrival_offsets(5000, 1.0, burstiness, random.Random(0))
        gaps = [b - a for a, b in itertools.pairwise(offsets)]
        return statistics.pstdev(gaps)

    # The deviation of a gamma distribution of mean 1 is 1 / sqrt(shape).
    assert spread(1.0) == pytest.approx(1.0, rel=0.1)
    assert spread(4.0) == pytest.approx(0.5, rel=0.1)


def test_an_infinite_rate_sends_all_at_once():
    assert arrival_offsets(3, float("inf"), 1.0, random.Random(0)) == [0.0, 0.0, 0.0]
    assert arrival_offsets(0, 1.0, 1.0, random.Random(0)) == []
    assert arrival_offsets(1, 1.0, 1.0, random.Random(0)) == [0.0]


@pytest.mark.parametrize("exponential", [False, True])
def test_a_ramp_sends_ever_faster(exponential):
    ramp = Ramp(10.0, 40.0, exponential)
    offsets = arrival_offsets(901, ramp, 1.0, random.Random(0))
    assert offsets == sorted(offsets)
    # The mean time between two requests is that of the rates, which the ends show best.
    head, tail = offsets[90] / 90, (offsets[900] - offsets[810]) / 90
    assert 0.06 < head < 0.14
    assert 0.018 < tail < 0.035
    mean_gap = sum(1 / ramp.rate(i / 899) for i in range(900)) / 900
    assert offsets[-1] == pytest.approx(900 * mean_gap)


def test_a_ramp_between_equal_rates_is_a_rate():
    flat = arrival_offsets(50, Ramp(5.0, 5.0, exponential=True), 2.0, random.Random(1))
    assert flat == pytest.approx(arrival_offsets(50, 5.0, 2.0, random.Random(1)))


@pytest.mark.parametrize(
    ("count", "limit", "cpus", "expected"),
    [(1, None, 8, 1), (32, None, 8, 1), (33, None, 8, 2), (1000, 64, 8, 2), (1000, None, 4, 3),
     (1000, None, 1, 1), (1000, None, 64, 16), (1000, 1, 8, 1)],
)  # fmt: skip
def test_number_of_clients(count, limit, cpus, expected):
    assert choose_num_clients(count, limit, cpus) == expected
