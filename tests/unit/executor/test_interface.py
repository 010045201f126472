"""Executors are found by name or by class path."""

import pytest

from octavo.executor.interface import EXECUTORS, find_executor
from octavo.types.errors import ConfigError
from support.fake_executor import FakeExecutor
from support.tiny import FAKE_EXECUTOR


def test_a_class_path_is_imported_as_often_as_asked():
    for _ in range(2):
        assert find_executor(FAKE_EXECUTOR) is FakeExecutor


def test_there_is_the_executor_in_the_process():
    assert "uni" in EXECUTORS


@pytest.mark.parametrize("name", ["ray", "", "no.such.module:Class", "support.tiny:Nothing"])
def test_unknown_names_are_refused(name):
    with pytest.raises(ConfigError, match="distributed_executor_backend"):
        find_executor(name)
