"""What grammars cost: time per token with and without, and the time to fill a step's masks.

    python benchmarks/structured_output.py [--model MODEL] [--batch 32] [--tokens 128] [--json FILE]
        [--rounds 5] [--no-jump-forward]

Runs with and without take turns, so that what else a machine does meets both; every pair gives a
percentage, of which the median and the spread are printed. Jump-forward takes steps away, so the
cost of the masks alone is that with --no-jump-forward. All runs make the same number of tokens. The
grammar is a JSON schema whose texts go on for longer than that. The target on an H200 is less than
3% more time per token at batch 32.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from octavo import LLM, SamplingParams
from octavo.engine.model_tokenizer import model_tokenizer
from octavo.structured_output.interface import BACKENDS, Vocabulary, mask_width
from octavo.types.sampling_params import StructuredOutputsParams

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 3, "maxLength": 24},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
PEOPLE = {"type": "array", "items": PERSON, "minItems": 500}
TARGET_PERCENT = 3.0


def seconds_per_token(llm: LLM, batch: int, tokens: int, grammar: bool) -> float:
    """Of one run of `batch` requests side by side."""
    spec = StructuredOutputsParams(json=PEOPLE) if grammar else None
    params = [
        SamplingParams(
            temperature=0.8,
            seed=seed,
            max_tokens=tokens,
            min_tokens=tokens,
            structured_outputs=spec,
        )
        for seed in range(batch)
    ]
    prompts = [f"Person number {number}:" for number in range(batch)]
    began = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    elapsed = time.perf_counter() - began
    assert all(len(output.outputs[0].token_ids) == tokens for output in outputs)
    return elapsed / tokens


def fill_times(llm: LLM, batch: int, tokens: int) -> list[float]:
    """Seconds to fill the masks of each step, along texts drawn evenly from what may come."""
    tokenizer = model_tokenizer(llm.config)
    assert tokenizer is not None
    model = llm.config.model
    backend = BACKENDS.get(llm.config.structured_outputs.backend)(
        Vocabulary(tokenizer, model.vocab_size, model.eos_token_ids)
    )
    first = backend.compile(StructuredOutputsParams(json=PEOPLE))
    grammars = [(first.copy(), row) for row in range(batch)]
    masks = np.zeros((batch, mask_width(model.vocab_size)), np.int32)
    rng = np.random.default_rng(0)
    found = []
    for _ in range(tokens):
        began = time.perf_counter()
        backend.fill(grammars, masks)
        found.append(time.perf_counter() - began)
        for grammar, row in grammars:
            bits = np.unpackbits(masks[row].view(np.uint8), bitorder="little")
            grammar.accept([int(rng.choice(bits.nonzero()[0]))])
    return sorted(found)


def main() -> int:
    """Measure and print; 1 if the target is missed on a GPU."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=None)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--load-format", default="auto")
    parser.add_argument("--jump-forward", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    named = {} if args.model is None else {"model": args.model}
    llm = LLM(
        **named,
        load_format=args.load_format,
        max_model_len=args.tokens + 64,
        max_num_seqs=args.batch,
        jump_forward=args.jump_forward,
    )
    pairs = []
    for _ in range(args.rounds + 1):  # the first one compiles
        free, bound = (
            seconds_per_token(llm, args.batch, args.tokens, grammar) for grammar in (False, True)
        )
        pairs.append((free, bound))
    pairs = pairs[1:]
    percents = sorted(100 * (bound / free - 1) for free, bound in pairs)
    fills = fill_times(llm, args.batch, args.tokens)
    added = statistics.median(percents)
    result = {
        "batch": args.batch,
        "rounds": args.rounds,
        "jump_forward": args.jump_forward,
        "ms_per_token": 1e3 * statistics.median(free for free, _ in pairs),
        "ms_per_token_with_grammar": 1e3 * statistics.median(bound for _, bound in pairs),
        "added_percent": added,
        "added_percent_spread": [percents[0], percents[-1]],
        "fill_ms_p50": 1e3 * fills[len(fills) // 2],
        "fill_ms_p99": 1e3 * fills[int(0.99 * (len(fills) - 1))],
    }
    print(json.dumps(result, indent=2))
    if args.json:
        args.json.write_text(json.dumps(result))
    on_gpu = llm.config.device.device_type == "cuda"
    return int(on_gpu and added > TARGET_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
