"""Offline throughput of engines with vLLM's LLM API on a small machine, side by side.

    python benchmarks/offline_cpu.py RUNS 'COMMAND ENGINE MODEL [name=value ...]' ...

Each argument is a worker: COMMAND is the Python that has the engine (it gets this file and the
rest). All workers start, then every case is run RUNS times, the workers taking turns, so that a
drifting machine touches all alike. Prints medians with the spread, and the ratios of the first
worker to the others. Prompts are 128 random token ids, 128 greedy tokens out, end-of-sequence
ignored, with 1, 8 and 64 requests at once; `prefill` is the time to the first token of one prompt.
"""

from __future__ import annotations

import importlib
import json
import random
import shlex
import statistics
import subprocess
import sys
import time
from typing import IO, Any

NUM_TOKENS = 128
VOCAB = 49000
CASES = {"prefill": (1, 1), "n1": (1, NUM_TOKENS), "n8": (8, NUM_TOKENS), "n64": (64, NUM_TOKENS)}


def work(engine: str, model: str, *settings: str) -> None:
    """Answer each case named on stdin with the seconds it took, on the real stdout."""
    reply, sys.stdout = sys.stdout, sys.stderr
    options = {name: _value(text) for name, _, text in (s.partition("=") for s in settings)}
    module = importlib.import_module(engine)
    began = time.perf_counter()
    llm = module.LLM(model=model, **options)
    rng = random.Random(0)

    def run(batch: int, num_out: int) -> float:
        prompts = [
            {"prompt_token_ids": [rng.randrange(VOCAB) for _ in range(NUM_TOKENS)]}
            for _ in range(batch)
        ]
        params = module.SamplingParams(
            temperature=0.0, ignore_eos=True, max_tokens=num_out, detokenize=False
        )
        start = time.perf_counter()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - start
        assert sum(len(o.outputs[0].token_ids) for o in outputs) == batch * num_out
        return seconds

    run(2, 4)
    _say(reply, time.perf_counter() - began)
    for line in sys.stdin:
        _say(reply, run(*CASES[line.strip()]))


def compare(runs: int, commands: list[str]) -> None:
    workers = []
    for command in commands:
        python, *arguments = shlex.split(command)
        # -P: this folder's files must not hide modules of the engine.
        worker = subprocess.Popen(
            [python, "-P", __file__, "--work", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        workers.append(worker)
        print(f"{arguments[0]}: started in {_hear(worker):.1f} s", flush=True)
    report: dict[str, Any] = {"runs": runs, "workers": commands, "cases": {}}
    for case, (batch, num_out) in CASES.items():
        seconds: list[list[float]] = [[] for _ in workers]
        for _ in range(runs):
            for taken, worker in zip(seconds, workers, strict=True):
                assert worker.stdin is not None
                worker.stdin.write(case + "\n")
                worker.stdin.flush()
                taken.append(_hear(worker))
        figures = [[t if num_out == 1 else batch * num_out / t for t in ts] for ts in seconds]
        medians = [statistics.median(values) for values in figures]
        report["cases"][case] = [[round(v, 3) for v in values] for values in figures]
        unit = "s" if num_out == 1 else "tok/s"
        shown = "  ".join(
            f"{median:8.2f} {unit} ({min(values):.2f}-{max(values):.2f})"
            for median, values in zip(medians, figures, strict=True)
        )
        ratios = " ".join(f"{medians[0] / median:.2f}x" for median in medians[1:])
        print(f"{case:8s} {shown}  {ratios}", flush=True)
    print("RESULT " + json.dumps(report))
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.close()
        worker.wait()


def _say(reply: IO[str], seconds: float) -> None:
    reply.write(f"{seconds}\n")
    reply.flush()


def _hear(worker: subprocess.Popen[str]) -> float:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        sys.exit("a worker ended early; its last words are above")
    return float(line)


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        work(*sys.argv[2:])
    else:
        compare(int(sys.argv[1]), sys.argv[2:])
