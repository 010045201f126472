"""The commands and programs of the pages, run as a reader runs them.

A server is at hand, as the pages take for granted. Its port is not 8000, which may be taken: so
addresses are changed to it, and commands that look at port 8000 by themselves are told where it is.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.utils import envs
from support.pages import ROOT, blocks
from support.tiny import tiny_folder

SECONDS = 280  # a block takes a few; the limit is only there to end a test that fails

SHIM = """#!/bin/sh
case "$1 $2" in
  "bench serve") shift 2; set -- bench serve --base-url "{url}" "$@" ;;
  "chat "* | "complete "*) set -- "$@" --url "{url}" ;;
esac
exec "{python}" -m octavo.cli.main "$@"
"""


def runnable(language):
    chosen = [b for b in blocks() if b.language == language and "not run" not in b.marks]
    return pytest.mark.parametrize("block", chosen, ids=lambda block: block.name)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home of the test's own; the C kernels are there, as compiling them takes long."""
    folder = tmp_path_factory.mktemp("home")
    compiled = envs.cache_root() / "native"
    if compiled.is_dir():
        shutil.copytree(compiled, folder / ".cache/octavo/native")
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """page -> the folder in which its blocks run, one after the other, as in a checkout."""
    made = {}

    def folder(page, url):
        if page not in made:
            made[page] = tmp_path_factory.mktemp("page")
            tools = made[page] / ".venv/bin"
            tools.mkdir(parents=True)
            (tools / "octavo").write_text(SHIM.format(url=url, python=sys.executable))
            (tools / "octavo").chmod(0o755)
            (tools / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
            (tools / "python").chmod(0o755)
            shutil.copytree(tiny_folder(), made[page] / "path/to/model")
            for name in ("benchmarks", "examples", "tools"):
                (made[page] / name).symlink_to(ROOT / name)
        return made[page]

    return folder


@pytest.fixture
def run(folders, home, real_url):
    def start(block, *program):
        folder = folders(block.page, real_url)
        text = block.text.replace("http://localhost:8000", real_url)
        text = text.replace("localhost:8000", real_url.removeprefix("http://"))
        environment = {
            **os.environ,
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "PATH": f"{folder / '.venv/bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
        }
        return _output([*program, text], folder, environment)

    return start


def _output(words: list[str], folder: Path, environment: dict[str, str]) -> str:
    process = subprocess.Popen(
        words, cwd=folder, env=environment, start_new_session=True, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, errors[-3000:]
    return output


def check(block, output):
    assert block.marks.get("prints", "") in output


@runnable("bash")
def test_commands(block, run):
    check(block, run(block, "bash", "-euo", "pipefail", "-c"))


@runnable("python")
def test_programs(block, run):
    check(block, run(block, sys.executable, "-c"))
