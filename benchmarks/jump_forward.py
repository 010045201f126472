"""What jump-forward saves: steps and time of JSON answers with and without it.

    python benchmarks/jump_forward.py [--model MODEL] [--batch 8] [--tokens 160] [--json FILE]

Both runs make the same tokens, which is checked. A schema with long names and fixed words gains
most, one with free text least.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from octavo import LLM, SamplingParams
from octavo.types.sampling_params import StructuredOutputsParams


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


SCHEMAS = {
    "person": _object(
        name={"type": "string", "maxLength": 20},
        age={"type": "integer", "minimum": 0, "maximum": 120},
        languages={"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 3},
    ),
    "invoice": _object(
        invoice_number={"type": "string", "pattern": "^INV-[0-9]{6}$"},
        customer_address=_object(
            street_address={"type": "string", "maxLength": 24},
            postal_code={"type": "string", "pattern": "^[0-9]{5}$"},
            country_code={"enum": ["DE", "FR", "US", "GB"]},
        ),
        payment_status={"enum": ["paid in full", "partially paid", "outstanding"]},
        total_amount_in_cents={"type": "integer", "minimum": 0, "maximum": 999999},
    ),
    "judgement": _object(
        is_relevant={"type": "boolean"},
        is_factually_correct={"type": "boolean"},
        overall_rating={"type": "integer", "minimum": 1, "maximum": 5},
    ),
    "text": _object(answer={"type": "string", "minLength": 200, "maxLength": 400}),
}


def measure(llm: LLM, schema: dict[str, Any], batch: int, tokens: int) -> dict[str, Any]:
    """One batch's tokens, seconds and steps saved."""
    spec = StructuredOutputsParams(json=schema, disable_any_whitespace=True)
    params = [
        SamplingParams(temperature=0.7, seed=seed, max_tokens=tokens, structured_outputs=spec)
        for seed in range(batch)
    ]
    prompts = [f"Record number {number}, as JSON:" for number in range(batch)]
    llm.generate(prompts, params, use_tqdm=False)  # compiles
    before = _forced(llm)
    began = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - began
    ids = [output.outputs[0].token_ids for output in outputs]
    return {"ids": ids, "seconds": seconds, "forced": _forced(llm) - before}


def _forced(llm: LLM) -> int:
    name = "octavo:structured_output_forced_tokens"
    return int(next(metric.value for metric in llm.get_metrics() if metric.name == name))


def main() -> int:
    """Print a table; 1 if the two runs differ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=None)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--load-format", default="auto")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    # On a GPU set it to 1: the end of an engine of its own process gives the memory back.
    os.environ.setdefault("OCTAVO_ENABLE_MULTIPROCESSING", "0")
    named = {} if args.model is None else {"model": args.model}
    found: dict[bool, dict[str, dict[str, Any]]] = {}
    for jumps in (False, True):
        llm = LLM(
            **named,
            load_format=args.load_format,
            max_model_len=args.tokens + 64,
            max_num_seqs=args.batch,
            jump_forward=jumps,
            disable_log_stats=False,
        )
        found[jumps] = {
            name: measure(llm, schema, args.batch, args.tokens) for name, schema in SCHEMAS.items()
        }
        llm.shutdown()
    table = {}
    same = True
    print(
        "| schema | tokens | without a step | tok/s, off | tok/s, on | |\n|---|---|---|---|---|---|"
    )
    for name in SCHEMAS:
        off, on = found[False][name], found[True][name]
        same &= off["ids"] == on["ids"]
        count = sum(map(len, on["ids"]))
        rates = count / off["seconds"], count / on["seconds"]
        share = on["forced"] / count
        print(
            f"| {name} | {count} | {100 * share:.0f}% | {rates[0]:.0f} | {rates[1]:.0f} | "
            f"{rates[1] / rates[0]:.2f}x |"
        )
        table[name] = {"tokens": count, "forced": on["forced"], "off": rates[0], "on": rates[1]}
    print("the same tokens" if same else "THE TOKENS DIFFER")
    if args.json:
        args.json.write_text(json.dumps(table, indent=1) + "\n")
    return int(not same)


if __name__ == "__main__":
    sys.exit(main())
