"""Options of other engines: none of ours is among them, and the answer has a reason."""

import pytest

from octavo.config.absent import _GROUPS, why_absent
from octavo.config.engine_options import engine_options
from octavo.config.server import server_options


def test_nothing_that_is_there_is_called_absent():
    known = engine_options() | server_options()
    assert [name for name in known if why_absent(name)] == []
    groups = [names.split() for names in _GROUPS.values()]
    assert all(names == sorted(names) for names in groups)
    assert len({name for names in groups for name in names}) == sum(map(len, groups))


@pytest.mark.parametrize("name", ["--swap-space", "swap_space", "--no-swap-space"])
def test_spellings(name):
    assert why_absent(name) == (
        f"{name} is refused: a preempted request is computed again, never swapped out; leave it out"
    )


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("--spec-method", "speculative decoding"),
        ("--mm-processor-cache-gb", "text only"),
        ("--data-parallel-rank", "one device"),
        ("--hf-token", "HF_TOKEN"),
    ],
)
def test_the_reason_is_that_of_the_feature(name, part):
    assert part in why_absent(name)


def test_others_have_no_reason():
    assert why_absent("--swap-spaces") is None
