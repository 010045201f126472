"""`octavo bench sweep`: a server's throughput against its latency, over settings of its knobs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from octavo.bench import serve
from octavo.bench.plots.chart import check_plot, save_page
from octavo.bench.report import save
from octavo.bench.serve_options import ServeBenchOptions, check
from octavo.bench.server_process import ServerProcess, octavo_server
from octavo.bench.sweep_points import (
    FigureStore,
    Load,
    Point,
    Setting,
    make_settings,
    parse_knobs,
    setting_name,
)
from octavo.bench.sweep_report import make_page, print_table, write_csv
from octavo.config.convert import convert, nearest
from octavo.config.engine_options import engine_options
from octavo.config.flags import FlagParser, add_flags
from octavo.config.options import option, options_of
from octavo.config.server import server_options
from octavo.config.sources import add_model_and_config, parse_options
from octavo.types.errors import ConfigError, OctavoError

_PERCENTILES = "50,90,95,99"
# Of the load test: set by the sweep itself.
_OWN = frozenset({"base_url", "host", "port", "num_prompts", "max_concurrency", "request_rate"})
_FIXED = frozenset({"host", "port", "uds"})  # of the server


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Which knobs, under which loads."""

    vary: tuple[str, ...] | None = option(
        None, "Knobs and their values: NAME=VALUE,VALUE,... for any flag of octavo serve."
    )
    design: Literal["each", "all"] = option(
        "each",
        "each: the flags as given, then one knob at a time. all: every combination of values.",
    )
    concurrencies: tuple[int, ...] | None = option(
        None, "Loads: most requests in flight; by default 1 4 16, unless there are rates.",
        low=1, high=10**6,
    )  # fmt: skip
    request_rates: tuple[float, ...] | None = option(
        None, "Loads: requests per second.", low=0.0, low_open=True
    )
    rounds: int = option(8, "Requests per stream of a concurrency.", low=1, high=10**6)
    min_prompts: int = option(16, "Least requests of a load.", low=1, high=10**6)
    load_seconds: float = option(
        30.0, "Seconds for which a rate of requests is sent.", low=0.0, low_open=True
    )
    repetitions: int = option(
        1, "Times to walk through all settings; medians count.", low=1, high=1000
    )
    load: Mapping[str, Any] = option(
        {}, "Flags of octavo bench serve, such as --load.input-len 512 --load.output-len 128."
    )
    folder: str = option(
        "sweep", "Where points and results go; a sweep that was interrupted goes on there."
    )
    plot: tuple[str, ...] | None = option(None, "More files for the charts (.html or .png).")


def main(argv: Sequence[str]) -> int:
    """Measure what is missing, then show everything; returns 1 if a server could not be run."""
    values, options = _parse(argv)
    settings = make_settings(
        parse_knobs(options.vary or (), engine_options() | server_options()), options.design
    )
    loads = [Load("concurrency", count) for count in options.concurrencies or ()]
    loads += [Load("rate", rate) for rate in options.request_rates or ()]
    loads = loads or [Load("concurrency", count) for count in (1, 4, 16)]
    plans = [_load_options(options, load, "http://unused") for load in loads]
    for plan in plans:
        check(plan)
    folder = Path(options.folder)
    common = {
        "flags": values,
        "load": dict(options.load),
        "rounds": options.rounds,
        "min_prompts": options.min_prompts,
        "load_seconds": options.load_seconds,
    }
    store = FigureStore(folder, common)
    try:
        complete = _walk(settings, loads, values, options, store)
    finally:
        _report(_points(settings, loads, options, store), folder, options, common)
    return 0 if complete else 1


def _walk(
    settings: Sequence[Setting],
    loads: Sequence[Load],
    values: Mapping[str, Any],
    options: SweepOptions,
    store: FigureStore,
) -> bool:
    """Measure what is missing; False if a server could not be started or refused requests.

    Walk by walk, not setting by setting: a machine that changes touches all settings alike.
    """
    complete = True
    for repetition in range(options.repetitions):
        for setting in settings:
            try:
                _measure(setting, loads, values, options, store, repetition)
            except OctavoError as error:
                complete = False
                print(f"failed: {setting_name(setting)}: {error}", flush=True)
    return complete


def _parse(argv: Sequence[str]) -> tuple[dict[str, Any], SweepOptions]:
    """(flags of the server, options of the sweep). Raises ConfigError."""
    own, served = options_of(SweepOptions, "sweep"), engine_options() | server_options()
    parser = FlagParser(
        "octavo bench sweep", "Measure a server under loads, over settings of its knobs."
    )
    add_model_and_config(parser)
    add_flags(parser, own, sections=False)
    add_flags(parser, served, sections=True)
    values, _ = parse_options(parser, argv, own | served)
    options = SweepOptions(**{n: convert(own[n], values[n]) for n in values if n in own})
    for path in options.plot or ():
        check_plot(path)
    flags = {n: value for n, value in values.items() if n in served and n not in _FIXED}
    return flags, options


def _load_options(options: SweepOptions, load: Load, url: str) -> ServeBenchOptions:
    """The load test of a load. Raises ConfigError."""
    known = options_of(ServeBenchOptions, "load")
    given = {name.replace("-", "_"): value for name, value in options.load.items()}
    for name in given:
        if name not in known:
            raise ConfigError(f"load: octavo bench serve has no {name!r}{nearest(name, known)}")
        if name in _OWN:
            raise ConfigError(f"load: {name} is the sweep's to set")
    chosen: dict[str, Any] = {
        "ignore_eos": True,
        "metric_percentiles": _PERCENTILES,
        "disable_tqdm": True,
    }
    chosen |= {name: convert(known[name], value) for name, value in given.items()}
    if load.kind == "concurrency":
        count = max(options.min_prompts, options.rounds * int(load.amount))
        chosen |= {"max_concurrency": int(load.amount), "num_prompts": count}
    else:
        count = max(options.min_prompts, round(load.amount * options.load_seconds))
        chosen |= {"request_rate": load.amount, "num_prompts": count}
    return ServeBenchOptions(**chosen, base_url=url)


def _measure(
    setting: Setting,
    loads: Sequence[Load],
    values: Mapping[str, Any],
    options: SweepOptions,
    store: FigureStore,
    repetition: int,
) -> None:
    """Measure the loads of a setting that have not been. Raises OctavoError."""
    missing = [load for load in loads if store.find(setting, load, repetition) is None]
    if not missing:
        return
    with ServerProcess(octavo_server({**values, **setting})) as server:
        # A first load compiles kernels and captures graphs.
        warm_up = _load_options(options, loads[-1], server.url)
        serve.measure(dataclasses.replace(warm_up, num_prompts=options.min_prompts))
        for load in missing:
            plan = _load_options(options, load, server.url)
            # With the same prompts, a load would find those of the one before in the cache.
            number = 1 + loads.index(load) + repetition * len(loads)
            outcome = serve.measure(dataclasses.replace(plan, seed=plan.seed + number))
            if outcome.figures["failed"]:
                errors = [result.error for result in outcome.results if result.error is not None]
                raise OctavoError(f"{len(errors)} requests failed under {load}; one: {errors[0]}")
            store.put(setting, load, repetition, outcome.figures)
            shown = f"{outcome.figures['output_throughput']:.1f} tok/s"
            print(f"{setting_name(setting)}, {load}: {shown}", flush=True)


def _points(
    settings: Sequence[Setting], loads: Sequence[Load], options: SweepOptions, store: FigureStore
) -> list[Point]:
    """What has been measured."""
    points = []
    for setting in settings:
        for load in loads:
            every = [store.find(setting, load, each) for each in range(options.repetitions)]
            found = [figures for figures in every if figures is not None]
            if found:
                points.append(Point.of(setting, load, found))
    return points


def _report(
    points: Sequence[Point], folder: Path, options: SweepOptions, common: Mapping[str, Any]
) -> None:
    if not points:
        return
    print_table(points)
    write_csv(points, folder / "sweep.csv")
    content = {
        **common,
        "points": [
            {
                "setting": dict(point.setting),
                "load": vars(point.load),
                "figures": dict(point.figures),
                "repetitions": list(point.repetitions),
            }
            for point in points
        ],
    }
    save(content, folder / "sweep.json")
    facts = [("flags", setting_name({k: str(v) for k, v in common["flags"].items()}))]
    facts += [("load", setting_name({k: str(v) for k, v in options.load.items()}))]
    page = make_page("Throughput against latency", facts, points)
    for path in (str(folder / "sweep.html"), *(options.plot or ())):
        save_page(page, path)
    print(f"results are in {folder}: sweep.json, sweep.csv, sweep.html")
