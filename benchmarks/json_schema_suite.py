"""How much of JSON Schema grammars keep: a score on the official JSON-Schema-Test-Suite.

    pip download --no-deps --no-binary jsonschema jsonschema && tar xf jsonschema-*.tar.gz
    python benchmarks/json_schema_suite.py jsonschema-*/json/tests [--json FILE]

For every schema of the suite: either it is refused, or the grammar made from it is asked about each
of its instances, objects in every order of their properties. A schema counts as kept if no invalid
instance is accepted. An accepted invalid one is a keyword passed over in silence: then the exit
code is 1. Valid instances are lost where the grammar is stricter than the schema, for instance
`1.0` for an integer.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from octavo.config.engine_args import EngineArgs
from octavo.engine.model_tokenizer import model_tokenizer
from octavo.structured_output.interface import (
    BACKENDS,
    Grammar,
    GrammarBackend,
    GrammarError,
    Vocabulary,
)
from octavo.types.sampling_params import StructuredOutputsParams

DRAFTS = ("draft2020-12", "draft2019-09", "draft7", "draft6", "draft4")
MOST_ORDERS = 720  # of one instance's properties
COLUMNS = (
    "schemas",
    "refused",
    "kept",
    "valid",
    "valid accepted",
    "invalid",
    "invalid refused",
)


def orders(value: Any) -> Iterator[Any]:
    """The value with its properties in every order."""
    if isinstance(value, list):
        yield from map(list, itertools.product(*[list(orders(part)) for part in value]))
    elif isinstance(value, dict):
        for names in itertools.permutations(value):
            parts = [list(orders(value[name])) for name in names]
            yield from (dict(zip(names, part, strict=True)) for part in itertools.product(*parts))
    else:
        yield value


class Score:
    """Counts over one draft, and what went wrong."""

    def __init__(self, backend: GrammarBackend, vocabulary: Vocabulary) -> None:
        self.counts: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.silent: list[str] = []
        self.lost: list[str] = []
        self._backend = backend
        self._tokenizer = vocabulary.tokenizer

    def add(self, place: str, group: dict[str, Any]) -> None:
        """A schema and its instances."""
        self.counts["schemas"] += 1
        spec = StructuredOutputsParams(json=json.dumps(group["schema"]))
        try:
            self._backend.check(spec)
            grammar = self._backend.compile(spec)
        except GrammarError as error:
            self.counts["refused"] += 1
            self.refusals[_reason(str(error))] += 1
            return
        kept = True
        for test in group["tests"]:
            accepted = self._accepts(grammar, test["data"])
            what = f"{place}: {group['description']}: {test['description']}"
            if test["valid"]:
                self.counts["valid"] += 1
                self.counts["valid accepted"] += accepted
                if not accepted:
                    self.lost.append(what)
            else:
                self.counts["invalid"] += 1
                self.counts["invalid refused"] += not accepted
                if accepted:
                    kept = False
                    self.silent.append(what)
        self.counts["kept"] += kept

    def _accepts(self, grammar: Grammar, value: Any) -> bool:
        for ordered in itertools.islice(orders(value), MOST_ORDERS):
            text = json.dumps(ordered, ensure_ascii=False)
            copy = grammar.copy()
            try:
                copy.accept(self._tokenizer.encode(text, False))
            except GrammarError:
                continue
            if copy.may_end:
                return True
        return False


def _reason(text: str) -> str:
    found = re.search(r"keyword '([^']+)'|(\$\w+|\b[a-z]+(?:Of|Items|Properties|Property))\b", text)
    if found:
        return found[1] or found[2]
    words = text.split(":", 1)[1].split()
    return words[0].lower().rstrip(":")


def main() -> int:
    """Print a table; 1 if an invalid instance is accepted anywhere."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="the suite's tests, a folder per draft")
    parser.add_argument("--backend", default="guidance")
    parser.add_argument("--show-lost", action="store_true", help="valid instances not accepted")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    config = EngineArgs().create_engine_config()
    tokenizer = model_tokenizer(config)
    assert tokenizer is not None
    vocabulary = Vocabulary(tokenizer, config.model.vocab_size, tuple(config.model.eos_token_ids))
    backend = BACKENDS.get(args.backend)(vocabulary)
    scores = {draft: Score(backend, vocabulary) for draft in DRAFTS}
    for draft, score in scores.items():
        for path in sorted((args.folder / draft).rglob("*.json")):
            for group in json.loads(path.read_text()):
                score.add(f"{draft}/{path.stem}", group)
    print("| draft |", " | ".join(COLUMNS), "|")
    print("|---|", "|".join("---" for _ in COLUMNS), "|", sep="")
    for draft, score in scores.items():
        print(f"| {draft} |", " | ".join(str(score.counts[name]) for name in COLUMNS), "|")
    refusals = sum((score.refusals for score in scores.values()), Counter())
    print("\nrefused for:", ", ".join(f"{name} {n}" for name, n in refusals.most_common()))
    silent = [what for score in scores.values() for what in score.silent]
    lost = [what for score in scores.values() for what in score.lost]
    for what in silent + (lost if args.show_lost else []):
        print(what)
    if args.json:
        table = {draft: dict(score.counts) for draft, score in scores.items()}
        args.json.write_text(json.dumps(table | {"refusals": dict(refusals)}, indent=1) + "\n")
    return int(bool(silent))


if __name__ == "__main__":
    sys.exit(main())
