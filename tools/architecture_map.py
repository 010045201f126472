"""Write the file map of docs/architecture.md from each module's first sentence."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "octavo"
TARGET = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- map:begin -->", "<!-- map:end -->"


def sentence(path: Path) -> str:
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(doc.split("\n\n")[0].split())


def build() -> str:
    lines: list[str] = []
    for folder in sorted({path.parent for path in SOURCE.rglob("*.py")}):
        init = folder / "__init__.py"
        name = folder.relative_to(SOURCE.parent)
        lines.append(f"\n**`{name}/`** {sentence(init) if init.exists() else ''}\n")
        for path in sorted(folder.glob("*.py")):
            if path.name != "__init__.py":
                lines.append(f"- `{path.name}` {sentence(path)}")
    return "\n".join(lines).strip() + "\n"


def main() -> None:
    text = TARGET.read_text()
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    new = f"{head}{BEGIN}\n{build()}{END}{tail}"
    if "--check" in sys.argv:
        if new != text:
            sys.exit("docs/architecture.md is out of date; run `make docs`")
        return
    TARGET.write_text(new)


if __name__ == "__main__":
    main()
