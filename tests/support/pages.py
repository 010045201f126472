"""Code blocks of the documentation's pages, with the marks that stand before them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"```(\S*)")
_MARK = re.compile(r"<!-- (not run|prints): (.+) -->")


@dataclass
class Block:
    """A fenced block.

    Before it may stand `<!-- not run: REASON -->`, or `<!-- prints: TEXT -->` for what its output
    must have in it.
    """

    page: str
    line: int
    language: str
    marks: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Every page of the repository."""
    tops = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    others = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return [path for path in tops + sorted(others) if "_build" not in path.parts]


def blocks() -> Iterator[Block]:
    """The blocks of all pages, in order."""
    for path in pages():
        yield from _blocks(path)


def prose(path: Path) -> str:
    """A page without its blocks."""
    inside, kept = False, []
    for line in path.read_text().splitlines():
        if line.startswith("```"):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def _blocks(path: Path) -> Iterator[Block]:
    page = str(path.relative_to(ROOT))
    marks: dict[str, str] = {}
    block: Block | None = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fence, mark = _FENCE.match(line), _MARK.fullmatch(line)
        if block is not None and fence:
            yield block
            block, marks = None, {}
        elif block is not None:
            block.lines.append(line)
        elif fence:
            block = Block(page, number, fence[1], marks)
        elif mark:
            marks[mark[1]] = mark[2]
        else:
            marks = {}
