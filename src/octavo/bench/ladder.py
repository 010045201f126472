"""`octavo bench ladder`: the cases an engine is judged by, against floors and other engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from octavo.bench.engines import EngineCommand
from octavo.bench.floors import ModelCost, find_hardware, floors
from octavo.bench.ladder_report import Line, make_lines, print_table, read_compared, to_json
from octavo.bench.ladder_run import Climb, Measure, Pace, Stage
from octavo.bench.ladder_sides import open_engine, open_server, open_starts, open_trace
from octavo.bench.offline import parse
from octavo.bench.report import date_stamp, save
from octavo.bench.rungs import Rung, parse_rungs
from octavo.bench.server_process import octavo_server
from octavo.config.engine_args import EngineArgs
from octavo.config.model import DEFAULT_MODEL
from octavo.config.octavo_config import OctavoConfig
from octavo.config.options import option
from octavo.types.errors import ConfigError

# Vocabularies end with tokens of special meaning; prompts are drawn from this share of the ids.
_ORDINARY_SHARE = 0.98


@dataclass(frozen=True, kw_only=True)
class LadderOptions:
    """Which rungs, how often, and against what."""

    rungs: tuple[str, ...] | None = option(
        None,
        "Cases, as KIND:COUNTxINPUT/OUTPUT (decode:32x256/128, prefill:1x8192, "
        "batch:256x100-1024/100-1024, prefix:8192+128x64/64, decode:1x32768+31x512/256, "
        "serve:64x1024/256, host:256x256, start:cold, start:warm), or the ladders gpu and cpu; by "
        "default the one of the device.",
    )
    repetitions: int = option(5, "Times each rung is measured.", low=1, high=1000)
    num_warmups: int = option(1, "Times each rung is run before, not measured.", low=0, high=100)
    rung_seconds: float = option(
        120.0, "After so many seconds on a rung, two repetitions are enough.", low=0.0
    )
    engine_command: tuple[str, ...] | None = option(
        None,
        "Other engines with vLLM's LLM, each one quoted: [VARIABLE=VALUE ...] PYTHON ENGINE MODEL "
        "[option=value ...].",
    )
    engine_serve_command: tuple[str, ...] | None = option(
        None,
        "Their servers, in the same order, for the serve rungs; {port} stands for the port. "
        "Without one, a serve rung runs on octavo alone.",
    )
    turns: Literal["auto", "repetition", "engine"] = option(
        "auto",
        "repetition: all engines run at once and alternate; engine: one after the other, each with "
        "the whole device. auto: repetition on a CPU, engine on a GPU.",
    )
    bandwidth_gbs: float | None = option(
        None, "What the memory reaches, in GB/s, for the floors; known for the H200.",
        low=0.0, low_open=True,
    )  # fmt: skip
    rate_tflops: float | None = option(
        None, "What a large matrix product reaches, in TFLOP/s; known for the H200.",
        low=0.0, low_open=True,
    )  # fmt: skip
    compare: str | None = option(None, "File of an earlier ladder to show ratios to.")
    label: str | None = option(None, "A word of one's own for the JSON file.")
    output_json: str | None = option(
        None, "File of the figures, written after every rung; by default made of the date."
    )


def main(argv: Sequence[str]) -> int:
    """Climb the ladder."""
    values, options = parse(
        argv, LadderOptions, "octavo bench ladder", "Measure the engine's ladder of cases."
    )
    values.setdefault("model", DEFAULT_MODEL)
    config = EngineArgs.from_dict(values).create_engine_config(usage="llm", weights=False)
    on_gpu = config.device.device_type == "cuda"
    rungs = parse_rungs(options.rungs or ("gpu" if on_gpu else "cpu",))
    compared = read_compared(options.compare) if options.compare else {}
    _Ladder(config, values, options, rungs, compared).climb()
    return 0


class _Ladder:
    """The sides of the comparison: octavo is the first one."""

    def __init__(
        self,
        config: OctavoConfig,
        values: Mapping[str, Any],
        options: LadderOptions,
        rungs: Sequence[Rung],
        compared: Mapping[tuple[str, str], float],
    ) -> None:
        others = [EngineCommand.parse(text) for text in options.engine_command or ()]
        servers = options.engine_serve_command or ()
        if len(servers) > len(others):
            raise ConfigError(
                f"engine_serve_command has {len(servers)} entries for {len(others)} of "
                "engine_command; give one for each engine"
            )
        self._config = config
        self._values = values
        self._options = options
        self._rungs = rungs
        self._compared = compared
        self._commands = [EngineCommand.octavo(values), *others]
        self._servers: list[list[str] | str] = [octavo_server(values), *servers]
        self._facts: list[dict[str, Any]] = [{} for _ in self._commands]
        self._vocab = max(1, int(config.model.vocab_size * _ORDINARY_SHARE))
        self._hardware = find_hardware(
            config.device.device_name, options.bandwidth_gbs, options.rate_tflops
        )
        self._path = Path(options.output_json or f"ladder-{date_stamp()}.json")
        alternate = options.turns == "repetition"
        if options.turns == "auto":
            alternate = config.device.device_type == "cpu"
        pace = Pace(
            repetitions=options.repetitions,
            rung_seconds=options.rung_seconds,
            alternate=alternate,
        )
        self._climb = Climb(len(self._commands), pace, self._on_result)

    def climb(self) -> None:
        """Measure everything, then print the table."""
        every = range(len(self._commands))
        stages = {
            ("start",): (every, self._starts, 0),
            ("decode", "batch", "prefill", "prefix"): (
                every, self._engine, self._options.num_warmups
            ),
            ("host",): ([0], self._trace, 0),
            ("serve",): (range(len(self._servers)), self._server, self._options.num_warmups),
        }  # fmt: skip
        try:
            for kinds, (sides, opener, num_warmups) in stages.items():
                rungs = [rung for rung in self._rungs if rung.kind in kinds]
                if rungs:
                    stage = Stage(rungs=rungs, sides=sides, opener=opener, num_warmups=num_warmups)
                    self._climb.run(stage)
        finally:
            lines = self._lines()
            if lines:
                names = [command.name for command in self._commands]
                print_table(lines, names, self._options.compare)
                print(f"saved to {self._path}")

    def _starts(self, side: int) -> AbstractContextManager[Measure]:
        return open_starts(self._commands[side])

    def _engine(self, side: int) -> AbstractContextManager[Measure]:
        return open_engine(self._commands[side], self._vocab, self._facts[side])

    def _server(self, side: int) -> AbstractContextManager[Measure]:
        return open_server(self._servers[side], self._vocab, self._facts[side])

    def _trace(self, side: int) -> AbstractContextManager[Measure]:
        return open_trace(self._values)

    def _lines(self) -> list[Line]:
        bounds: dict[str, dict[str, float]] = {}
        if self._hardware is not None:
            cost = ModelCost(self._config)
            bounds = {rung.word: floors(rung, cost, self._hardware) for rung in self._rungs}
        return make_lines(self._rungs, self._climb.results, bounds, self._compared)

    def _on_result(self, rung: Rung, side: int) -> None:
        measured = self._climb.results[side][rung.word]
        shown = {name: [round(v, 4) for v in vs] for name, vs in measured.values.items()}
        print(f"{self._commands[side].name} {rung.word}: {shown}", flush=True)
        sides = [
            {"engine": c.engine, "model": c.model, "options": dict(c.options), **facts}
            for c, facts in zip(self._commands, self._facts, strict=True)
        ]
        hardware = self._hardware
        content = {
            "model_id": self._config.model.served_model_name[0],
            "dtype": self._config.model.dtype,
            "label": self._options.label,
            "hardware": hardware and {"bandwidth": hardware.bandwidth, "rate": hardware.rate},
            "repetitions": self._options.repetitions,
            "engines": sides,
            "ladder": to_json(self._lines(), self._climb.results),
        }
        save(content, self._path)
