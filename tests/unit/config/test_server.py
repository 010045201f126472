"""Options of the server that are checked beyond their type."""

import pytest

from octavo.config.server import ServerArgs
from octavo.types.errors import ConfigError


def test_where_traces_go():
    assert ServerArgs().profiler_folder is None
    config = {"profiler": "torch", "torch_profiler_dir": "/t"}
    assert ServerArgs(profiler_config=config).profiler_folder == "/t"
    assert ServerArgs(profiler_config='{"torch_profiler_dir": "/t"}').profiler_folder == "/t"


@pytest.mark.parametrize(
    "config",
    [{"profiler": "torch"}, {"profiler": "cuda", "torch_profiler_dir": "/t"},
     {"torch_profiler_dri": "/t"}, {"torch_profiler_dir": ""}, {"torch_profiler_dir": 3}],
)  # fmt: skip
def test_traces_that_can_not_be_recorded(config):
    with pytest.raises(ConfigError, match="profiler_config"):
        ServerArgs(profiler_config=config)
