"""Machine facts from trees that look like /proc, /sys and /dev."""

from __future__ import annotations

import os

import pytest

from octavo.platforms import detect
from octavo.platforms.detect import detect_platform, usable_cpus, usable_memory
from octavo.types.errors import ConfigError
from octavo.types.platform_info import PlatformInfo

GIB = 1 << 30
KIB_PER_GIB = 1 << 20


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A root with 16 GiB of RAM, 12 available, and 8 cores in the affinity mask."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    write(
        tmp_path,
        {
            "proc/meminfo": f"MemTotal: {16 * KIB_PER_GIB} kB\nMemFree: {2 * KIB_PER_GIB} kB\n"
            f"MemAvailable: {12 * KIB_PER_GIB} kB\n",
            "proc/cpuinfo": "processor\t: 0\nmodel name\t: Fast CPU\n"
            "flags\t\t: fpu avx2 avx512f avx512_bf16 amx_tile\n",
        },
    )
    return tmp_path


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_plain_machine(machine):
    assert detect_platform(root=machine) == PlatformInfo(
        device_type="cpu",
        device_name="Fast CPU",
        total_memory=16 * GIB,
        free_memory=12 * GIB,
        num_cpus=8,
        cpu_flags=("avx2", "avx512f", "avx512_bf16"),
    )


def test_cgroup_v2_limits(machine):
    write(
        machine,
        {
            "proc/self/cgroup": "0::/app/engine\n",
            "sys/fs/cgroup/app/engine/memory.max": f"{8 * GIB}\n",
            "sys/fs/cgroup/app/engine/memory.current": f"{5 * GIB}\n",
            "sys/fs/cgroup/app/engine/memory.stat": f"anon 1\ninactive_file {GIB}\n",
            "sys/fs/cgroup/app/engine/cpu.max": "250000 100000\n",
        },
    )
    # 8 - 5 GiB in use, of which 1 GiB is page cache that can go.
    assert usable_memory(machine) == (8 * GIB, 4 * GIB)
    assert usable_cpus(machine) == 2


def test_the_tightest_cgroup_above_counts(machine):
    write(
        machine,
        {
            "proc/self/cgroup": "0::/app/engine\n",
            "sys/fs/cgroup/app/memory.max": f"{4 * GIB}",
            "sys/fs/cgroup/app/memory.current": f"{GIB}",
            "sys/fs/cgroup/app/cpu.max": "400000 100000",
            "sys/fs/cgroup/app/engine/memory.max": "max",
            "sys/fs/cgroup/app/engine/cpu.max": "max 100000",
        },
    )
    assert usable_memory(machine) == (4 * GIB, 3 * GIB)
    assert usable_cpus(machine) == 4


def test_cgroup_v1_limits(machine):
    write(
        machine,
        {
            "proc/self/cgroup": "4:memory:/app\n3:cpu,cpuacct:/app\n0::/\n",
            "sys/fs/cgroup/memory/app/memory.limit_in_bytes": f"{6 * GIB}",
            "sys/fs/cgroup/memory/app/memory.usage_in_bytes": f"{3 * GIB}",
            "sys/fs/cgroup/memory/app/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us": "150000",
            "sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us": "100000",
        },
    )
    assert usable_memory(machine) == (6 * GIB, 4 * GIB)
    assert usable_cpus(machine) == 1


def test_a_container_that_sees_its_own_cgroup_as_the_top(machine):
    write(
        machine,
        {
            "proc/self/cgroup": "0::/a/path/of/the/host\n",
            "sys/fs/cgroup/memory.max": f"{2 * GIB}",
            "sys/fs/cgroup/memory.current": f"{GIB}",
        },
    )
    assert usable_memory(machine) == (2 * GIB, GIB)


def test_no_quota_and_a_quota_below_one_core(machine):
    write(machine, {"proc/self/cgroup": "3:cpu:/\n"})
    write(machine, {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"})
    write(machine, {"sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"})
    assert usable_cpus(machine) == 8
    write(machine, {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000"})
    assert usable_cpus(machine) == 1


def test_a_full_cgroup_has_nothing_free(machine):
    write(
        machine,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": f"{GIB}",
            "sys/fs/cgroup/memory.current": f"{GIB + 4096}",
        },
    )
    assert usable_memory(machine) == (GIB, 0)


def test_a_machine_without_proc(tmp_path):
    total, free = usable_memory(tmp_path)
    assert total == free > 0
    assert usable_cpus(tmp_path) >= 1


GPU = PlatformInfo("cuda", "a GPU", 80 * GIB, 79 * GIB, capability=(9, 0))


@pytest.fixture
def gpu_machine(machine, monkeypatch):
    write(machine, {"dev/nvidiactl": ""})
    monkeypatch.setattr(detect, "torch_version", lambda: "2.11.0")
    monkeypatch.setattr(detect.GPU_DETECTORS, "get", lambda name: lambda: GPU)
    return machine


def test_a_gpu_is_preferred_unless_the_cpu_is_asked_for(gpu_machine):
    assert detect_platform(root=gpu_machine) == GPU
    assert detect_platform("cuda", gpu_machine) == GPU
    assert detect_platform("cpu", gpu_machine).device_type == "cpu"


def test_a_cpu_build_of_torch_runs_on_the_cpu(gpu_machine, monkeypatch):
    monkeypatch.setattr(detect, "torch_version", lambda: "2.11.0+cpu")
    assert detect_platform(root=gpu_machine).device_type == "cpu"
    with pytest.raises(ConfigError, match=r"CPU build.*--device cpu"):
        detect_platform("cuda", gpu_machine)


def test_a_driver_without_devices(gpu_machine, monkeypatch):
    monkeypatch.setattr(detect.GPU_DETECTORS, "get", lambda name: lambda: None)
    assert detect_platform(root=gpu_machine).device_type == "cpu"
    with pytest.raises(ConfigError, match="no usable device"):
        detect_platform("cuda", gpu_machine)


def test_cuda_without_a_driver_is_refused(machine):
    with pytest.raises(ConfigError, match="no NVIDIA driver"):
        detect_platform("cuda", machine)


def test_an_unknown_device_is_refused(machine):
    with pytest.raises(ConfigError, match="device='tpu'"):
        detect_platform("tpu", machine)
