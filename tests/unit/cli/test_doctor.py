"""`octavo doctor`: what it finds in machines and installations that lack something."""

import importlib.metadata
import json
import socket

import pytest

from octavo.cli import doctor, doctor_machine, doctor_software
from octavo.cli.finding import Finding, Status, collect
from octavo.cli.main import main
from octavo.types.platform_info import PlatformInfo

HEALTHY = {
    "torch": "2.13.0+cpu",
    "import_seconds": 1.0,
    "threads": 2,
    "cuda_build": None,
    "cuda": None,
    "native": {"lanes": 8, "error": None},
}


@pytest.fixture
def probe(monkeypatch):
    """probe(changes): what the process that tries torch found."""

    def found(error="", **changes):
        answer = (None, error) if error else ({**HEALTHY, **changes}, "")
        monkeypatch.setattr(doctor_software, "run_probe", lambda: answer)
        return {finding.name: finding for finding in doctor_software.torch()}

    return found


def test_the_real_machine(capsys):
    code = main(["doctor", "--json"])
    content = json.loads(capsys.readouterr().out)
    findings = {f["name"]: f for f in content["findings"]}
    assert findings["torch"]["status"] == "ok"
    assert findings["packages"]["status"] in ("ok", "fault")  # of the installation under test
    assert code == (1 if content["counts"]["fault"] else 0)
    assert not [f for f in content["findings"] if "could not be looked at" in f["text"]]


@pytest.mark.parametrize(
    ("status", "code", "verdict"),
    [
        (Status.OK, 0, "octavo runs here"),
        (Status.NOTE, 0, "octavo runs here"),
        (Status.WARNING, 0, "octavo runs here; worth a look: thing"),
        (Status.FAULT, 1, "octavo can't run here: thing"),
    ],
)
def test_the_verdict(status, code, verdict, monkeypatch, capsys):
    finding = Finding("group", "thing", status, "so it is", "mend it")
    monkeypatch.setattr(doctor, "_checks", lambda port: [lambda: [finding]])
    assert main(["doctor"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "group"
    assert lines[1].split() == [str(status), "thing", "so", "it", "is"]
    assert lines[2].strip() == "-> mend it"
    assert lines[-1] == verdict


def test_a_check_that_fails_is_a_finding():
    def broken():
        raise RuntimeError("boom")

    (finding,) = collect([broken])
    assert (finding.name, finding.status) == ("broken", Status.WARNING)
    assert "RuntimeError: boom" in finding.text


def test_a_torch_that_can_not_be_imported(probe):
    found = probe(error="ImportError: libcudart.so.13: cannot open shared object file")
    assert found["torch"].status is Status.FAULT
    assert "libcudart" in found["torch"].text
    assert "-m pip install" in found["torch"].remedy


def test_no_compiler(probe):
    found = probe(native={"lanes": None, "error": "no C compiler was found (gcc or cc)"})
    assert found["torch"].status is Status.OK
    assert found["C kernels"].status is Status.WARNING
    assert "apt install gcc" in found["C kernels"].remedy


def test_cuda_without_a_gpu(probe):
    cuda = {"devices": 0, "error": "Found no NVIDIA driver on your system"}
    found = probe(cuda_build="13.0", cuda=cuda)
    assert found["CUDA"].status in (Status.NOTE, Status.FAULT)  # a fault where there is a driver


def test_packages(monkeypatch):
    required = [
        "numpy>=1", "absent-package>=2", "msgspec>=999", "nothing; sys_platform == 'plan9'",
        "redis-absent>=5; extra == 'redis'", "numpy>=1; extra == 'bench'",
    ]  # fmt: skip
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: required)
    found = list(doctor_software.packages())
    faults = [f.text for f in found if f.status is Status.FAULT]
    assert faults[0] == "absent-package is missing"
    assert faults[1].startswith("msgspec is ")
    assert faults[1].endswith("octavo needs >=999")
    assert len(faults) == 2
    (redis,) = [f for f in found if f.name == "extra redis"]
    assert redis.status is Status.NOTE
    assert redis.remedy.endswith("-m pip install 'octavo[redis]'")


def test_variables(monkeypatch):
    monkeypatch.setenv("OCTAVO_CPU_KERNEL", "native")
    monkeypatch.setenv("OCTAVO_CPU_KERNELS", "native")
    monkeypatch.setenv("OCTAVO_API_KEY", "secret")
    found = {f.name: f for f in doctor_software.variables()}
    assert found["OCTAVO_CPU_KERNEL"].status is Status.WARNING
    assert found["OCTAVO_CPU_KERNEL"].remedy == "did you mean OCTAVO_CPU_KERNELS?"
    assert found["OCTAVO_CPU_KERNELS"].text == "native"
    assert found["OCTAVO_API_KEY"].text == "***"


def test_a_cache_folder_without_room(monkeypatch, tmp_path):
    usage = doctor_software.shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(doctor_software.shutil, "disk_usage", lambda path: usage)
    monkeypatch.setenv("OCTAVO_CACHE_ROOT", str(tmp_path / "not there yet"))
    found = {f.name: f for f in doctor_software.caches()}
    assert found["cache folder"].status is Status.WARNING
    assert "1 MiB free" in found["cache folder"].text
    assert "OCTAVO_CACHE_ROOT" in found["cache folder"].remedy
    assert "HF_HOME" in found["model folder"].remedy


def test_a_gpu_without_a_driver(tmp_path):
    card = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x1022\n")
    (card / "class").write_text("0x030200\n")
    (finding,) = doctor_machine.gpu(tmp_path)
    assert finding.status is Status.NOTE
    (card / "vendor").write_text("0x10de\n")
    (finding,) = doctor_machine.gpu(tmp_path)
    assert finding.status is Status.WARNING
    assert "--gpus all" in finding.remedy


def test_a_driver_without_a_usable_torch(tmp_path, monkeypatch):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    monkeypatch.setattr("octavo.platforms.detect.torch_version", lambda: "2.13.0+cpu")
    (finding,) = doctor_machine.gpu(tmp_path)
    assert finding.status is Status.WARNING
    assert "the installed torch is a CPU build" in finding.text
    assert "CUDA build" in finding.remedy


@pytest.mark.parametrize(
    ("capability", "free", "status", "remedy"),
    [
        ((9, 0), 140, Status.OK, ""),
        ((7, 5), 140, Status.WARNING, "tested from sm_80 on"),
        ((9, 0), 20, Status.WARNING, "nvidia-smi lists them"),
    ],
)
def test_gpus(tmp_path, monkeypatch, capability, free, status, remedy):
    found = PlatformInfo("cuda", "H200", 141 << 30, free << 30, capability=capability)
    monkeypatch.setattr(doctor_machine, "detect_platform", lambda prefer, root: found)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    version = tmp_path / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Rel\n")
    (finding,) = doctor_machine.gpu(tmp_path)
    assert finding.status is status
    assert f"H200, sm_{capability[0]}{capability[1]}, driver 580.159.04, " in finding.text
    assert remedy in finding.remedy


def test_ports(stub):
    number = int(stub.url.rpartition(":")[2])
    (finding,) = doctor_machine.port(number)
    assert (finding.status, finding.text) == (Status.OK, "a server with small, large is there")
    stub.refusal = (404, "no")
    (finding,) = doctor_machine.port(number)
    assert finding.status is Status.WARNING
    assert "Address already in use" in finding.text
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number = probe.getsockname()[1]
    (finding,) = doctor_machine.port(number)
    assert finding.text == "free"


@pytest.mark.parametrize(("exempt", "status"), [("localhost", Status.OK), ("", Status.WARNING)])
def test_proxies(monkeypatch, exempt, status):
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", exempt)
    (finding,) = doctor_machine.proxies()
    assert finding.status is status


def test_few_open_files(monkeypatch):
    monkeypatch.setattr(doctor_machine.resource, "getrlimit", lambda which: (1024, 65536))
    (finding,) = doctor_machine.open_files()
    assert finding.status is Status.NOTE
    assert finding.remedy.endswith("ulimit -n 65536")
