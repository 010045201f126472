"""Finding: one thing that `octavo doctor` has looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How much it matters."""

    OK = "ok"
    NOTE = "note"  # good to know; nothing is missing that was asked for
    WARNING = "warning"  # octavo runs, but worse, or a common use of it fails
    FAULT = "fault"  # octavo does not run


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, and where something is wrong or missing, the way to mend it."""

    group: str
    name: str
    status: Status
    text: str
    remedy: str = ""


# A check looks at one thing, and answers whatever state the machine is in.
Check = Callable[[], Iterable[Finding]]


def collect(checks: Sequence[Check]) -> list[Finding]:
    """The findings of all; a check that fails is one itself."""
    findings: list[Finding] = []
    for check in checks:
        try:
            findings.extend(check())
        except Exception as error:
            name = check.__name__.replace("_", " ")
            text = f"could not be looked at: {type(error).__name__}: {error}"
            findings.append(Finding("doctor", name, Status.WARNING, text))
    return findings
