"""`octavo doctor`: whether octavo can run here, and how to mend what is wrong."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import octavo
from octavo.cli import doctor_machine, doctor_software
from octavo.cli.finding import Check, Finding, Status, collect
from octavo.config.convert import convert
from octavo.config.flags import FlagParser, add_flags
from octavo.config.options import option, options_of
from octavo.utils import envs

_COLOURS = {Status.OK: "32", Status.NOTE: "36", Status.WARNING: "33", Status.FAULT: "31"}


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """What to look at besides, and how to say it."""

    port: int = option(8000, "The port that a server is to have.", low=1, high=65535)
    json: bool = option(False, "Print JSON.")


def parser() -> FlagParser:
    """The flags of the command."""
    made = FlagParser(
        "octavo doctor",
        "Look at this machine and installation: versions, GPU and driver, compilers, what is "
        "missing and how to get it, caches, memory, limits, the port. Nothing is changed but for "
        "the C kernels, which are built if they are not yet. The exit code is 1 if octavo can't "
        "run, and 0 otherwise, warnings or not.",
    )
    made.usage = "%(prog)s [FLAGS]"
    add_flags(made, options_of(DoctorOptions, "doctor"), sections=False)
    return made


def main(argv: Sequence[str]) -> int:
    """Print what was found; 1 if any of it is a fault."""
    known = options_of(DoctorOptions, "doctor")
    values = parser().parse(argv)
    options = DoctorOptions(**{name: convert(known[name], v) for name, v in values.items()})
    findings = collect(_checks(options.port))
    print(as_json(findings) if options.json else as_text(findings, colours=_colours()))
    return 1 if any(finding.status is Status.FAULT for finding in findings) else 0


def as_json(findings: Sequence[Finding]) -> str:
    """One object: a count per status, and the findings."""
    counts = {str(status): sum(f.status is status for f in findings) for status in Status}
    content = {"octavo": octavo.__version__, "counts": counts}
    return json.dumps(content | {"findings": [asdict(f) for f in findings]}, indent=2)


def as_text(findings: Sequence[Finding], *, colours: bool) -> str:
    """A line per finding, its remedy below it, and a verdict."""
    width = max((len(finding.name) for finding in findings), default=0)
    lines, group = [], ""
    for finding in findings:
        if finding.group != group:
            group = finding.group
            lines += ["", group]
        status = f"{finding.status:<7}"
        if colours:
            status = f"\x1b[{_COLOURS[finding.status]}m{status}\x1b[0m"
        lines.append(f"  {status}  {finding.name:<{width}}  {finding.text}")
        if finding.remedy:
            lines.append(f"  {'':<7}  {'':<{width}}  -> {finding.remedy}")
    return "\n".join([*lines, "", _verdict(findings)]).lstrip("\n")


def _verdict(findings: Sequence[Finding]) -> str:
    faults = [f.name for f in findings if f.status is Status.FAULT]
    warnings = [f.name for f in findings if f.status is Status.WARNING]
    if faults:
        return f"octavo can't run here: {', '.join(dict.fromkeys(faults))}"
    if warnings:
        return f"octavo runs here; worth a look: {', '.join(dict.fromkeys(warnings))}"
    return "octavo runs here"


def _checks(port: int) -> list[Check]:
    named_port = functools.partial(doctor_machine.port, port)
    functools.update_wrapper(named_port, doctor_machine.port)
    return [
        doctor_software.python,
        doctor_software.packages,
        doctor_software.small_model,
        doctor_software.torch,
        doctor_software.triton,
        doctor_software.caches,
        doctor_software.variables,
        doctor_machine.gpu,
        doctor_machine.processor,
        doctor_machine.open_files,
        doctor_machine.proxies,
        named_port,
    ]


def _colours() -> bool:
    return sys.stdout.isatty() and not envs.plain_output()
