"""Shell completion: every command and flag is in it, and bash completes by it."""

import shutil
import subprocess

import pytest
import shtab

from octavo.cli import bench
from octavo.cli.completion import BENCH_OPTIONS, PARSERS, bench_parser, main, whole_parser
from octavo.cli.main import COMMANDS
from octavo.config.engine_options import engine_options


def test_every_command_is_there():
    assert {*PARSERS, "bench"} == set(COMMANDS)
    assert set(BENCH_OPTIONS) == set(bench.BENCHMARKS) == set(bench.OPTIONS)


@pytest.mark.parametrize("name", bench.OPTIONS)
def test_benchmarks_have_the_flags_that_they_take(name, capsys):
    """Their help, which their own parser prints, has each flag."""
    with pytest.raises(SystemExit):
        bench.main([name, "--help"])
    text = capsys.readouterr().out
    flags = [flag for flag in bench_parser(name).flags() if flag.startswith("--")]
    assert [flag for flag in flags if flag not in text] == []
    takes_engine = "--max-num-seqs" in text
    assert takes_engine == (bench.OPTIONS[name][1] != "none")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell, capsys):
    assert main([shell]) == 0
    script = capsys.readouterr().out
    for word in [*COMMANDS, *bench.OPTIONS, "max-num-batched-tokens", "goodput"]:
        assert word in script
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=script, text=True, check=True)


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory):
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    path = tmp_path_factory.mktemp("completion") / "octavo.bash"
    path.write_text(shtab.complete(whole_parser(), "bash"))
    return path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ser"], ["serve"]),
        (["serve", "--max-num-b"], ["--max-num-batched-tokens"]),
        (["serve", "--dtype", "b"], ["bfloat16"]),
        (["serve", "--no-enable-pre"], ["--no-enable-prefix-caching"]),
        (["bench", "sw"], ["sweep"]),
        (["bench", "serve", "--dataset-name", "share"], ["sharegpt"]),
        (["cache", "p"], ["prune"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["chat", "--system-p"], ["--system-prompt"]),
    ],
)
def test_bash(bash_script, words, expected):
    program = """
    source "$1"; shift
    COMP_WORDS=(octavo "$@"); COMP_CWORD=$#
    $(complete -p octavo | sed 's/.*-F \\([^ ]*\\).*/\\1/') octavo "${!#}" "${COMP_WORDS[$#-1]}"
    printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "-c", program, "bash", str(bash_script), *words],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == expected


def test_choices_are_those_of_the_options():
    serve = whole_parser()._subparsers._group_actions[0].choices["serve"]
    choices = {action.dest: action.choices for action in serve._actions}
    for name, known in engine_options().items():
        if known.base == "choice" and not known.many:
            assert set(choices[name]) == set(known.choices), name


@pytest.mark.parametrize("words", [[], ["csh"]])
def test_other_shells(words):
    with pytest.raises(ValueError, match=r"there are bash|did you mean"):
        main(words)
