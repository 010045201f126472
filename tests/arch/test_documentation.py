"""What pages say of flags, files and each other is so; their commands run in tests/server."""

import re
import shlex

import pytest

from octavo.cli.bench import BENCHMARKS
from octavo.cli.completion import PARSERS, bench_parser
from octavo.cli.main import COMMANDS
from octavo.types.errors import ConfigError
from support.pages import ROOT, blocks, pages, prose

LANGUAGES = ("bash", "python", "json", "text", "{toctree}")
# Flags of other programs.
FOREIGN = {"--gpus", "--no-deps"}
PAGES = [str(path.relative_to(ROOT)) for path in pages()]


def parser_of(words):
    """(the parser of a command line, the words that it parses)."""
    if words[1] == "bench":
        return bench_parser(words[2]), words[3:]
    return PARSERS.get(words[1])(), words[2:]


def command_lines(block):
    """The `octavo` commands of a bash block, as words."""
    for line in block.text.replace("\\\n", " ").splitlines():
        for part in line.split("|"):
            words = shlex.split(part, comments=True)
            if words and words[0] in ("octavo", ".venv/bin/octavo") and len(words) > 1:
                end = next((i for i, word in enumerate(words) if word in (">", ">>", "&")), None)
                yield words[:end]


@pytest.mark.parametrize("block", list(blocks()), ids=lambda block: block.name)
def test_blocks_say_what_they_are(block):
    """So that no command stands where the test of commands doesn't see it."""
    assert block.language in LANGUAGES
    assert not block.marks or block.language in ("bash", "python")


MARKED = [b for b in blocks() if "not run" in b.marks]


@pytest.mark.parametrize("block", MARKED, ids=lambda block: block.name)
def test_what_is_not_run_can_be_read(block):
    if block.language == "python":
        compile(block.text, block.name, "exec")
        return
    for words in command_lines(block):
        parser, rest = parser_of(words)
        parser.parse(rest)


def test_reading_finds_wrong_commands():
    parser, rest = parser_of(["octavo", "serve", "MODEL", "--max-model-length", "8"])
    with pytest.raises(ConfigError):
        parser.parse(rest)


@pytest.fixture(scope="module")
def flags():
    parsers = [PARSERS.get(name)() for name in PARSERS] + [bench_parser(n) for n in BENCHMARKS]
    of_commands = {flag for parser in parsers for flag in parser.flags()}
    scripts = [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "tools").rglob("*.py")]
    code = "".join(path.read_text() for path in scripts)
    return of_commands | set(re.findall(r'add_argument\("(--[a-z-]+)"', code))


@pytest.mark.parametrize("page", [page for page in PAGES if "decisions" not in page])
def test_flags_that_pages_name_exist(page, flags):
    code = " ".join(re.findall(r"`([^`]+)`", prose(ROOT / page)))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]", code))
    assert named - flags - FOREIGN == set()


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    path = ROOT / page
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if "://" not in target and not target.startswith("#"):
            assert (path.parent / target.partition("#")[0]).exists(), target


def test_the_page_of_commands_names_each():
    text = (ROOT / "docs" / "cli.md").read_text()
    assert [name for name in COMMANDS if name != "version" and f"`{name}`" not in text] == []


def test_the_first_page_leads_to_each():
    text = (ROOT / "docs" / "index.md").read_text()
    names = [p.removeprefix("docs/") for p in PAGES if p.startswith("docs/") and "decis" not in p]
    assert [name for name in names if name != "index.md" and f"]({name})" not in text] == []


@pytest.mark.parametrize(
    ("page", "folder"),
    [("cases.md", "tests"), ("glossary.md", "src/octavo")],
)
def test_files_that_pages_name_exist(page, folder):
    text = prose(ROOT / "docs" / page)
    named = set(re.findall(r"`([\w./-]+/(?:[\w-]+\.\w+)?)`", text)) - {"tests/"}
    assert named
    assert [path for path in sorted(named) if not (ROOT / folder / path).exists()] == []
