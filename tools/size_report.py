"""Print code lines per package and the largest files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "octavo"


def code_lines(path: Path) -> int:
    lines = (line.strip() for line in path.read_text().splitlines())
    return sum(1 for line in lines if line and not line.startswith("#"))


def main() -> None:
    sizes = {path.relative_to(SOURCE): code_lines(path) for path in SOURCE.rglob("*.py")}
    packages: Counter[str] = Counter()
    for path, size in sizes.items():
        packages[path.parts[0] if len(path.parts) > 1 else "."] += size
    for name, size in packages.most_common():
        print(f"{size:6d}  {name}")
    print(f"{sum(sizes.values()):6d}  total\n")
    for path, size in sorted(sizes.items(), key=lambda item: -item[1])[:15]:
        print(f"{size:6d}  {path}")


if __name__ == "__main__":
    main()
