"""Lists of compiled kernels: their places, their names, and broken ones."""

import dataclasses
import sys
from pathlib import Path

import msgspec
import pytest

from octavo.config.engine_options import EngineOptions
from octavo.config.resolve import ModelFacts, resolve
from octavo.kernels import compile_manifest, compile_start
from octavo.kernels.compile_manifest import (
    KernelManifest,
    ManifestEntry,
    kernel_folders,
    manifest_key,
    read_manifest,
    write_manifest,
)
from octavo.kernels.compile_start import KernelStart, NoKernelStart, begin_kernels
from octavo.types.platform_info import PlatformInfo

H200 = PlatformInfo("cuda", "NVIDIA H200", 140 << 30, 139 << 30, capability=(9, 0))
CPU = PlatformInfo("cpu", "a CPU", 32 << 30, 24 << 30)
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 256,
}
LIST = KernelManifest(True, [ManifestEntry("octavo.kernels.norm", "_kernel", "{}", "ab12")])


def configure(platform=H200, **options):
    return resolve(EngineOptions(**options), platform, "llm", facts=ModelFacts(hf_config=TINY))


@pytest.fixture
def folders(monkeypatch, tmp_path):
    monkeypatch.setenv("OCTAVO_KERNEL_CACHE", str(tmp_path / "own"))
    shared = f"{tmp_path / 'shared'}:{tmp_path / 'missing'}"
    monkeypatch.setenv("OCTAVO_SHARED_KERNEL_CACHES", shared)
    return kernel_folders(H200)


def test_a_folder_per_compiler_and_capability(folders, tmp_path):
    assert [folder.parent.name for folder in folders] == ["own", "shared", "missing"]
    names = {folder.name for folder in folders}
    assert len(names) == 1
    assert names.pop().endswith("-sm90")
    other = kernel_folders(msgspec.structs.replace(H200, capability=(10, 0)))
    assert other[0].name.endswith("-sm100")


def test_own_list_then_shared_ones(folders):
    assert read_manifest(folders, "key") is None
    write_manifest(folders[1], "key", LIST)
    assert read_manifest(folders, "key") == LIST
    newer = KernelManifest(False, [])
    write_manifest(folders[0], "key", newer)
    assert read_manifest(folders, "key") == newer
    assert read_manifest(folders, "another") is None


@pytest.mark.parametrize("content", [b"", b"{", b'{"complete": 3}', b"[]", b"\xff\xfe"])
def test_a_broken_list_is_none(folders, content):
    write_manifest(folders[0], "key", LIST)
    path = next((folders[0] / "manifests").iterdir())
    path.write_bytes(content)
    assert read_manifest(folders, "key") is None
    write_manifest(folders[1], "key", LIST)
    assert read_manifest(folders, "key") == LIST


def test_the_key_names_sources_and_computation(monkeypatch, tmp_path):
    package = tmp_path / "octavo"
    (package / "kernels").mkdir(parents=True)
    (package / "kernels" / "a.py").write_text("A = 1\n")
    monkeypatch.setattr(compile_manifest, "__file__", str(package / "kernels" / "x.py"))
    keys = {manifest_key("one"), manifest_key("two")}
    (package / "kernels" / "a.py").write_text("A = 2\n")
    keys.add(manifest_key("one"))
    (package / "kernels" / "a.py").rename(package / "kernels" / "b.py")
    keys.add(manifest_key("one"))
    assert len(keys) == 4
    # What an API process does leaves the kernels as they are.
    (package / "entrypoints").mkdir()
    (package / "entrypoints" / "c.py").write_text("C = 1\n")
    keys.add(manifest_key("one"))
    assert len(keys) == 4


def test_the_key_is_that_of_another_torch(monkeypatch):
    version = compile_manifest.importlib.metadata.version
    before = manifest_key("one")
    monkeypatch.setattr(
        compile_manifest.importlib.metadata,
        "version",
        lambda name: "9.9.9+cu990" if name == "torch" else version(name),
    )
    assert manifest_key("one") == before


def test_packages_that_hold_kernels_are_in_the_key():
    root = Path(compile_manifest.__file__).parents[1]
    holding = [p for p in root.rglob("*.py") if "@triton.jit" in p.read_text(encoding="utf-8")]
    assert holding
    assert not {path.relative_to(root).parts[0] for path in holding} & compile_manifest._APART


def test_a_compiler_is_told_by_version_and_python(monkeypatch):
    monkeypatch.setattr(compile_manifest.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(compile_manifest.importlib.metadata, "version", lambda name: "3.6.0")
    monkeypatch.setattr(compile_manifest.platform, "machine", lambda: "x86_64")
    tag = sys.implementation.cache_tag
    assert compile_manifest.compiler_name() == f"triton-3.6.0-{tag}-x86_64"
    monkeypatch.setattr(compile_manifest.importlib.util, "find_spec", lambda name: None)
    assert compile_manifest.compiler_name() == compile_manifest.NO_TRITON


def test_the_computation_is_of_a_kind_of_device():
    named = compile_start.kernel_computation
    one = configure()
    other_name = msgspec.structs.replace(H200, device_name="sm_90a", num_cpus=7)
    assert named(one) == named(dataclasses.replace(one, device=other_name))
    blackwell = msgspec.structs.replace(H200, capability=(10, 0))
    assert named(one) != named(dataclasses.replace(one, device=blackwell))
    assert named(one) != named(configure(max_num_seqs=64))


class FakeProcess:
    def __init__(self, config, folder=None):
        self.left = self.closed = False

    def leave(self):
        self.left = True

    def close(self):
        self.closed = True


@pytest.fixture
def begin(monkeypatch, folders):
    monkeypatch.setattr(compile_start, "CompileProcess", FakeProcess)
    return lambda: begin_kernels(configure())


def test_a_complete_list_needs_no_process(begin, folders):
    started = begin()
    assert isinstance(started, KernelStart)
    assert started.manifest is None
    assert not started.process.left
    write_manifest(folders[1], started.key, LIST)
    again = begin()
    assert again.manifest == LIST
    assert again.process is None
    again.close()
    started.close()
    assert started.process.closed


def test_an_incomplete_list_is_used_and_completed(begin, folders):
    key = begin().key
    write_manifest(folders[0], key, msgspec.structs.replace(LIST, complete=False))
    started = begin()
    assert started.manifest is not None
    assert started.process.left


def test_no_process_where_none_is_wanted(begin, monkeypatch):
    monkeypatch.setenv("OCTAVO_COMPILE_PROCESSES", "0")
    assert begin().process is None


def test_a_cpu_has_no_kernels_to_compile():
    started = begin_kernels(configure(CPU))
    assert isinstance(started, NoKernelStart)
    kernels = started.load("cpu")
    kernels.finish()
    kernels.close()
