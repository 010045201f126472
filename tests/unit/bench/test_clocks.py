"""Clocks of a GPU that is not there, and of one that is made up."""

import time

import pytest

from octavo.bench import clocks
from octavo.bench.clocks import ClockSampler, driver_facts


class FakeNVML:
    """One GPU whose clock falls with every reading."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    def __init__(self, missing=False):
        self.missing = missing
        self.open = 0
        self.sm = 2000

    def nvmlInit(self):
        if self.missing:
            raise self.NVMLError("no driver")
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        return 1

    def nvmlDeviceGetHandleByIndex(self, index):
        return "gpu"

    def nvmlDeviceGetName(self, handle):
        return "NVIDIA Made Up"

    def nvmlSystemGetDriverVersion(self):
        return "580.1"

    def nvmlDeviceGetMaxClockInfo(self, handle, clock):
        return {1: 1980, 2: 3201}[clock]

    def nvmlDeviceGetPowerManagementLimit(self, handle):
        raise self.NVMLError("not supported")

    def nvmlDeviceGetClockInfo(self, handle, clock):
        if clock == self.NVML_CLOCK_MEM:
            return 3201
        self.sm -= 10
        return self.sm


@pytest.fixture
def nvml(monkeypatch):
    fake = FakeNVML()
    monkeypatch.setattr(clocks, "pynvml", fake)
    monkeypatch.setattr(clocks, "_INTERVAL", 0.005)
    return fake


def test_facts_of_the_driver(nvml):
    assert driver_facts() == {
        "driver": "580.1",
        "gpus": [
            {"name": "NVIDIA Made Up", "max_sm_mhz": 1980, "max_memory_mhz": 3201,
             "power_limit_w": None}
        ],
    }  # fmt: skip
    assert nvml.open == 0


def test_clocks_while_something_runs(nvml):
    with ClockSampler() as sampler:
        deadline = time.monotonic() + 10
        while nvml.sm > 1970 and time.monotonic() < deadline:
            time.sleep(0.005)
    summary = sampler.summary()
    assert summary["sm_mhz_min"] <= 1970 <= summary["sm_mhz_median"] <= 1990
    assert summary["memory_mhz_median"] == 3201
    assert nvml.open == 0


def test_no_driver(nvml):
    nvml.missing = True
    assert driver_facts() == {}
    with ClockSampler() as sampler:
        pass
    assert sampler.summary() == {}
