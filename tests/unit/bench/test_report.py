"""Where a figure was measured."""

import json
import subprocess

import octavo
from octavo.bench import report
from octavo.bench.report import commit, save


def test_a_result_says_where_it_comes_from(tmp_path):
    save({"figure": 3.5}, tmp_path / "deep" / "r.json")
    result = json.loads((tmp_path / "deep" / "r.json").read_text())
    assert result["figure"] == 3.5
    assert result["machine"]["octavo"] == octavo.__version__
    assert result["machine"]["num_cpus"] >= 1
    assert {"host", "processor", "device", "python", "torch", "commit"} <= result["machine"].keys()


def git(folder, *words):
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *words]
    subprocess.run(command, check=True, capture_output=True)


def test_the_commit_is_that_of_the_package(tmp_path, monkeypatch):
    package = tmp_path / "octavo"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(report.octavo, "__file__", str(package / "__init__.py"))
    git(tmp_path, "init", "-q")
    (tmp_path / "other").write_text("")
    git(tmp_path, "add", "other")
    git(tmp_path, "commit", "-q", "-m", "one")
    # A repository around an installed package says nothing about the package.
    assert commit() is None
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "two")
    clean = commit()
    assert len(clean) == 12
    (package / "__init__.py").write_text("changed")
    assert commit() == f"{clean}-dirty"
