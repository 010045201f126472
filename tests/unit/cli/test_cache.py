"""`octavo cache`: what it lists, and what it removes."""

import json
import os
import time

import pytest

from octavo.cli.cache import size_text
from octavo.cli.main import main
from octavo.kernels.compile_manifest import compiler_name


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    monkeypatch.setenv("OCTAVO_CACHE_ROOT", str(tmp_path))
    monkeypatch.delenv("OCTAVO_KERNEL_CACHE", raising=False)
    for days, folder in [(0, f"{compiler_name()}-sm90"), (40, "triton-1.0-1-sm80")]:
        for name in ("A", "B"):
            path = tmp_path / "kernels" / folder / name / "k.cubin"
            path.parent.mkdir(parents=True)
            path.write_bytes(b"x" * 1024)
            used = time.time() - 86400 * days - 3600
            os.utime(path, (used, used))
    return tmp_path / "kernels"


def left(kernels):
    return len(list(kernels.rglob("k.cubin")))


def test_list(kernels, capsys):
    assert main(["cache"]) == 0
    text = capsys.readouterr().out
    assert f"kernels {compiler_name()}-sm90\n" in text
    assert "kernels triton-1.0-1-sm80  (of another Triton)" in text
    assert "4 KiB  in all" in text
    assert main(["cache", "list", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert {line["current"] for line in content["caches"]} == {True, False}
    assert sum(line["bytes"] for line in content["caches"]) == 4096


@pytest.mark.parametrize(
    ("flags", "remain"),
    [
        ([], 2),
        (["--unused-days", "60"], 4),
        (["--unused-days", "0"], 0),
        (["--max-size", "1K"], 1),
        (["--unused-days", "60", "--max-size", "3K"], 3),
        (["--all"], 0),
    ],
)
def test_prune(kernels, capsys, flags, remain):
    assert main(["cache", "prune", "--dry-run", *flags]) == 0
    assert f"would remove {4 - remain} of 4 entries" in capsys.readouterr().out
    assert left(kernels) == 4
    assert main(["cache", "prune", "--json", *flags]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == 1024 * (4 - remain)
    assert left(kernels) == remain


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["prun"], "unknown action 'prun'; did you mean prune?"),
        (["--all"], "--all is for pruning: octavo cache prune --all"),
        (["prune", "--max-size", "-1"], "max_size=-1"),
    ],
)
def test_wrong_use(kernels, capsys, words, message):
    assert main(["cache", *words]) == 2
    assert message in capsys.readouterr().err
    assert left(kernels) == 4


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (2048, "2 KiB"), (5 << 20, "5 MiB"), (3 << 40, "3072.0 GiB")],
)
def test_sizes(size, text):
    assert size_text(size) == text
