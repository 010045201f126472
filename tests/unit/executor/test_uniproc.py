"""UniProcExecutor hands every call to its one worker."""

from types import SimpleNamespace

import pytest

from octavo.executor import uniproc
from octavo.types.kv_spec import FullAttentionSpec, KVCacheConfig, KVCacheGroup
from octavo.types.platform_info import PlatformInfo
from octavo.types.scheduler_output import SchedulerOutput
from octavo.utils.registry import Registry

SPEC = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=4, dtype="float32")

CONFIG = SimpleNamespace(device=PlatformInfo("cpu", "a CPU", 1, 1))


class FakeWorker:
    def __init__(self, config, start):
        self.config = config
        self.calls = []

    def kv_cache_specs(self):
        return {"layer": SPEC}

    def available_kv_memory(self):
        return 12345

    def initialize_kv_cache(self, config):
        self.calls.append(config)

    def execute_model(self, step):
        return ("handle", step)

    def start_up_phases(self):
        return {"device": 0.5}

    def add(self, a, b):
        return a + b

    def _private(self):
        return "secret"

    def shutdown(self):
        self.calls.append("shutdown")


@pytest.fixture
def executor(monkeypatch):
    monkeypatch.setattr(uniproc, "WORKERS", Registry("worker", {"default": FakeWorker}))
    monkeypatch.setattr(uniproc, "begin_kernels", lambda config: None)
    return uniproc.UniProcExecutor(CONFIG)


def test_calls_reach_the_worker(executor):
    kv_config = KVCacheConfig(3, (KVCacheGroup(("layer",), SPEC),))
    step = SchedulerOutput(7)
    assert executor._worker.config is CONFIG
    assert executor.kv_cache_specs() == {"layer": SPEC}
    assert executor.available_kv_memory() == 12345
    executor.initialize_kv_cache(kv_config)
    assert executor.execute_model(step) == ("handle", step)
    executor.shutdown()
    assert executor._worker.calls == [kv_config, "shutdown"]


def test_collective_calls(executor):
    assert executor.collective_rpc("start_up_phases") == [{"device": 0.5}]
    assert executor.collective_rpc("add", (1, 2)) == [3]


@pytest.mark.parametrize("name", ["_private", "__class__", "config", "nothing"])
def test_only_public_methods_can_be_called(executor, name):
    with pytest.raises(ValueError, match=name):
        executor.collective_rpc(name)
