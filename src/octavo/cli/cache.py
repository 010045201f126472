"""`octavo cache list|prune`: the compiled code that octavo keeps on disk."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from octavo.config.convert import convert, nearest
from octavo.config.flags import FlagParser, add_flags
from octavo.config.options import option, options_of
from octavo.kernels.compile_manifest import compiler_name
from octavo.types.errors import ConfigError, OctavoError
from octavo.utils import envs
from octavo.utils.disk_cache import CacheEntry, beyond_size, cache_entries, unused_since

ACTIONS = ("list", "prune")

_DAY = 86_400
_CLOCK_SLACK = 600.0  # seconds: what a start in progress has just written stays


@dataclass(frozen=True, kw_only=True)
class CacheOptions:
    """What `prune` removes, and how both report."""

    unused_days: int | None = option(
        None, "prune: remove what was not used for so many days (default: 30).", low=0
    )
    max_size: int | None = option(
        None, "prune: then remove the longest unused until this many bytes are left (2G).", low=0
    )
    all: bool = option(False, "prune: remove everything.")
    dry_run: bool = option(False, "prune: say what would be removed, and leave it.")
    json: bool = option(False, "Print JSON.")


def parser() -> FlagParser:
    """The flags of the command."""
    made = FlagParser(
        "octavo cache",
        "List or prune compiled GPU kernels, the C kernels and torch.compile's code. What is "
        "missing is made again at the next start. Models downloaded from the Hugging Face hub "
        "are not here: the command `hf cache` is for those.",
    )
    made.usage = "%(prog)s {list,prune} [FLAGS]"
    made.add_argument("action", nargs="?", default="list", metavar="{list,prune}")
    add_flags(made, options_of(CacheOptions, "cache"), sections=False)
    return made


def main(argv: Sequence[str]) -> int:
    """Print what there is, or remove what is old."""
    values = parser().parse(argv)
    action = values.pop("action")
    if action not in ACTIONS:
        guess = nearest(action, ACTIONS) or "; there are list and prune"
        raise ConfigError(f"unknown action {action!r}{guess}")
    known = options_of(CacheOptions, "cache")
    options = CacheOptions(**{name: convert(known[name], v) for name, v in values.items()})
    if action == "list":
        given = {"unused_days", "max_size", "all", "dry_run"} & set(values)
        if given:
            flag = "--" + min(given).replace("_", "-")
            raise ConfigError(f"{flag} is for pruning: octavo cache prune {flag}")
    entries = cache_entries(envs.cache_root(), envs.kernel_cache())
    return _list(entries, options) if action == "list" else _prune(entries, options)


def summary(entries: Sequence[CacheEntry]) -> list[dict[str, Any]]:
    """One line per kind and group: entries, bytes, last use, and whether this installation uses it.

    `current` is None where that can't be told.
    """
    ours = compiler_name()
    lines = []
    ordered = sorted(entries, key=attrgetter("kind", "group"))
    for (kind, group), members in groupby(ordered, key=attrgetter("kind", "group")):
        group_entries = list(members)
        lines.append(
            {
                "kind": kind,
                "group": group,
                "entries": len(group_entries),
                "bytes": sum(entry.size for entry in group_entries),
                "last_used": max(entry.last_used for entry in group_entries),
                "current": group.rpartition("-sm")[0] == ours if kind == "kernels" else None,
            }
        )
    return lines


def size_text(size: int) -> str:
    """Bytes in a unit that suits them."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def _list(entries: Sequence[CacheEntry], options: CacheOptions) -> int:
    lines = summary(entries)
    folders = {"root": str(envs.cache_root()), "kernels": str(envs.kernel_cache())}
    if options.json:
        print(json.dumps({"folders": folders, "caches": lines}, indent=2))
        return 0
    print(f"compiled code in {folders['root']}, kernels in {folders['kernels']}")
    for line in lines:
        name = f"{line['kind']} {line['group']}".strip()
        used = time.strftime("%Y-%m-%d", time.localtime(line["last_used"]))
        other = "  (of another Triton)" if line["current"] is False else ""
        size = size_text(line["bytes"])
        print(f"{size:>10}  {line['entries']:>6} entries  last used {used}  {name}{other}")
    print(f"{size_text(sum(entry.size for entry in entries)):>10}  in all")
    return 0


def _prune(entries: Sequence[CacheEntry], options: CacheOptions) -> int:
    chosen = _chosen(entries, options)
    failed = [] if options.dry_run else _remove(chosen)
    removed = [entry for entry in chosen if entry not in failed]
    size = sum(entry.size for entry in removed)
    if options.json:
        paths = [str(entry.path) for entry in removed]
        print(json.dumps({"dry_run": options.dry_run, "bytes": size, "removed": paths}, indent=2))
    else:
        verb = "would remove" if options.dry_run else "removed"
        print(f"{verb} {len(removed)} of {len(entries)} entries, {size_text(size)}")
    if failed:
        raise OctavoError(f"{failed[0].path} and {len(failed) - 1} others can't be removed")
    return 0


def _chosen(entries: Sequence[CacheEntry], options: CacheOptions) -> list[CacheEntry]:
    if options.all:
        return list(entries)
    now = time.time()
    days = options.unused_days
    if days is None and options.max_size is None:
        days = 30
    old = [] if days is None else unused_since(entries, now - max(days * _DAY, _CLOCK_SLACK))
    if options.max_size is None:
        return old
    kept = [entry for entry in entries if entry not in old]
    return old + beyond_size(kept, options.max_size)


def _remove(entries: Sequence[CacheEntry]) -> list[CacheEntry]:
    """Remove them; returns those that could not be."""
    failed = []
    for entry in entries:
        try:
            entry.remove()
        except OSError:
            failed.append(entry)
    return failed
