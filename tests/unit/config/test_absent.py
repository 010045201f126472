"""Options of other engines: none of ours is among them, and the answer has a reason."""

import pytest

from octavo.config.absent import _REASONS, why_absent
from octavo.config.engine_options import engine_options
from octavo.config.server import server_options


def test_nothing_that_is_there_is_called_absent():
    known = engine_options() | server_options()
    assert [name for name in known if why_absent(name)] == []
    assert list(_REASONS) == sorted(_REASONS)


@pytest.mark.parametrize("name", ["--swap-space", "swap_space", "--no-swap-space"])
def test_spellings(name):
    assert why_absent(name) == (
        f"{name} is refused: a preempted request is computed again, never swapped out; leave it out"
    )


def test_others_have_no_reason():
    assert why_absent("--swap-spaces") is None
