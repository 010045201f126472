"""Run batches on any engine that has vLLM's LLM and SamplingParams, as told on standard input.

A script of its own: it is run by the Python that has the engine, which need not have octavo. Lines
of JSON come in: first {"engine", "model", "options"}, then batches. Lines of JSON go out on what
was the standard output: {"started", "version"}, then one {"seconds", "input", "output"} each.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import time
from typing import IO, Any


def main() -> None:
    """Start the engine that the first line names, then run a batch per line until they end."""
    # What the engine or its processes print must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # This folder's modules must not hide the engine's.
    sys.path.pop(0)
    began = time.perf_counter()
    start = json.loads(sys.stdin.readline())
    module = importlib.import_module(start["engine"])
    imported = time.perf_counter()
    llm = module.LLM(model=start["model"], **start["options"])
    ready = time.perf_counter()
    _say(
        answers,
        {
            "version": str(getattr(module, "__version__", "")),
            "import_seconds": imported - began,
            "start_seconds": ready - imported,
        },
    )
    for line in sys.stdin:
        _say(answers, run(llm, module.SamplingParams, json.loads(line)))
    shutdown = getattr(llm, "shutdown", None)
    if callable(shutdown):
        shutdown()


def run(llm: Any, sampling_params: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Generate for a batch; prompts are random token ids, the same for the same seed.

    `groups`: [count, low, high] lengths of prompts; `output`: [low, high]; `shared`: tokens that
    all prompts begin with, made of `shared_seed`; `vocab`: ids are below it.
    """
    vocab: int = batch["vocab"]
    shared = _ids(random.Random(batch["shared_seed"]), batch["shared"], vocab)
    rng = random.Random(batch["seed"])
    prompts = [
        {"prompt_token_ids": shared + _ids(rng, rng.randint(low, high), vocab)}
        for count, low, high in batch["groups"]
        for _ in range(count)
    ]
    lengths = [rng.randint(*batch["output"]) for _ in prompts]
    params = [
        sampling_params(temperature=0.0, ignore_eos=True, max_tokens=length, detokenize=False)
        for length in lengths
    ]
    began = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - began
    produced = sum(len(output.outputs[0].token_ids) for output in outputs)
    if produced != sum(lengths):
        raise SystemExit(f"{sum(lengths)} tokens were asked for, {produced} came")
    return {
        "seconds": seconds,
        "input": sum(len(prompt["prompt_token_ids"]) for prompt in prompts),
        "output": produced,
    }


def _ids(rng: random.Random, count: int, vocab: int) -> list[int]:
    return [rng.randrange(vocab) for _ in range(count)]


def _say(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
