"""Which GPU is taken, with a driver made up."""

from __future__ import annotations

from types import SimpleNamespace

import pynvml
import pytest

from octavo.platforms.nvml import detect_cuda

GIB = 1 << 30
UUIDS = ["GPU-aaaa-1", "GPU-bbbb-2", "GPU-bbcc-3"]


@pytest.fixture
def driver(monkeypatch):
    """Three devices of 80, 81 and 82 GiB, 1 GiB of each reserved by the driver."""

    def by_index(index):
        if index >= len(UUIDS):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return index

    def by_uuid(uuid):
        if uuid != "MIG-x":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return 1

    def memory(handle, version):
        return SimpleNamespace(total=(80 + handle) * GIB, reserved=GIB, free=70 * GIB)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, function in {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: len(UUIDS),
        "nvmlDeviceGetHandleByIndex": by_index,
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetUUID": lambda handle: UUIDS[handle],
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetName": lambda handle: f"GPU {handle}",
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
    }.items():
        monkeypatch.setattr(pynvml, name, function)
    return monkeypatch


def test_the_first_device_and_how_many(driver):
    found = detect_cuda()
    assert found.device_name == "GPU 0"
    assert found.num_devices == 3
    assert (found.total_memory, found.free_memory) == (79 * GIB, 70 * GIB)
    assert found.capability == (9, 0)


@pytest.mark.parametrize(
    ("visible", "name", "count"),
    [
        ("2", "GPU 2", 1),
        ("1, 0", "GPU 1", 2),
        ("1,7,0", "GPU 1", 1),  # CUDA stops at the first it does not know
        ("GPU-bbcc-3", "GPU 2", 1),
        ("GPU-aa", "GPU 0", 1),
        ("MIG-x", "GPU 1", 1),
    ],
)
def test_visible_devices(driver, visible, name, count):
    driver.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = detect_cuda()
    assert (found.device_name, found.num_devices) == (name, count)


@pytest.mark.parametrize("visible", ["", "-1", "9", "NoDevFiles", "MIG-y", "GPU-zz"])
def test_no_visible_device(driver, visible):
    driver.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert detect_cuda() is None


def test_a_driver_that_does_not_answer(driver):
    def fail():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    driver.setattr(pynvml, "nvmlInit", fail)
    assert detect_cuda() is None
