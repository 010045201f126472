"""FeatureRows: the device learns which rows of the features' tables are a slot's."""

from __future__ import annotations

from octavo.kernels.slot_tables import Feature
from octavo.sampling.feature_rows import FeatureRows
from octavo.sampling.staging import Staging
from support.sampling_requests import CPU


def _make() -> tuple[FeatureRows, dict[Feature, dict[int, int]], Staging]:
    users: dict[Feature, dict[int, int]] = {feature: {} for feature in Feature}
    staging = Staging(CPU)
    return FeatureRows(6, users, staging), users, staging


def test_rows_are_those_at_the_flush() -> None:
    rows, users, staging = _make()
    users[Feature.BIAS][4] = 7
    rows.note(4)
    users[Feature.BIAS][4] = 2
    users[Feature.PENALTIES][4] = 1
    assert (rows.table == -1).all()
    rows.flush()
    staging.flush()
    assert rows.table[4, Feature.BIAS] == 2
    assert rows.table[4, Feature.PENALTIES] == 1
    assert (rows.table == -1).sum() == rows.table.numel() - 2


def test_a_slot_that_gave_its_rows_back_has_none() -> None:
    rows, users, staging = _make()
    users[Feature.MIN_TOKENS][0] = 3
    rows.note(0)
    rows.flush()
    del users[Feature.MIN_TOKENS][0]
    rows.note(0)
    rows.flush()
    staging.flush()
    assert (rows.table == -1).all()


def test_requests_without_features_are_not_written() -> None:
    rows, _, staging = _make()
    rows.note(1)
    rows.note(2)
    rows.flush()
    staging.put = None  # type: ignore[method-assign, assignment]
    rows.note(1)
    rows.flush()
