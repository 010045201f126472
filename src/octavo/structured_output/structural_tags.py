"""Structural tags written as Lark grammars: constant texts, schemas, and tags in free text.

The format is xgrammar's: {"type": "structural_tag", "format": {...}} and the older form with
"structures" and "triggers". A special token in a constant text stands for the token, not for
its letters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from octavo.structured_output.interface import GrammarError

MAX_DEPTH = 32
_FIELD = "structural_tag"
_TEXT = "TEXT"
# Fields of each part, beside "type"; others are refused.
_FIELDS: Mapping[str, frozenset[str]] = {
    "any_text": frozenset(),
    "const_string": frozenset({"value"}),
    "grammar": frozenset({"grammar"}),
    "json_schema": frozenset({"json_schema"}),
    "or": frozenset({"elements"}),
    "regex": frozenset({"pattern"}),
    "sequence": frozenset({"elements"}),
    "tag": frozenset({"begin", "content", "end"}),
    "tags_with_separator": frozenset({"tags", "separator", "at_least_one", "stop_after_first"}),
    "triggered_tags": frozenset({"triggers", "tags", "at_least_one", "stop_after_first"}),
}


class TagGrammar:
    """Writes one structural tag; `grammars` are what llguidance takes, the main one first.

    `schema` checks a JSON schema and gives it as Lark wants it, `regex` and `grammar` likewise.
    `special` holds the ids of special tokens by their spelling.
    """

    def __init__(
        self,
        *,
        schema: Callable[[Any], str],
        regex: Callable[[str], str],
        grammar: Callable[[str], str],
        special: Mapping[str, int],
    ) -> None:
        self._schema = schema
        self._regex = regex
        self._grammar = grammar
        self._special = special
        spelled = sorted(map(re.escape, special), key=len, reverse=True)
        self._special_pattern = re.compile("(" + "|".join(spelled) + ")") if spelled else None
        self._rules: list[str] = []
        self._side: list[dict[str, str]] = []
        self._count = 0

    def grammars(self, text: str) -> list[dict[str, str]]:
        """Raises GrammarError for what is no structural tag."""
        try:
            whole = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise GrammarError(f"structural_tag is no JSON text: {error}", _FIELD) from None
        if not isinstance(whole, dict) or whole.get("type", "structural_tag") != "structural_tag":
            raise _wrong('it must be {"type": "structural_tag", "format": {...}}')
        part = whole["format"] if "format" in whole else _modern(whole)
        start = self._part(part, "format", 0)
        lines = [f"start: {start}", f"{_TEXT}: /(.|\\n)*/", *self._rules]
        return [{"name": "tags", "lark_grammar": "\n".join(lines)}, *self._side]

    def _part(self, part: Any, where: str, depth: int) -> str:
        if depth > MAX_DEPTH:
            raise _wrong(f"it is nested more than {MAX_DEPTH} deep")
        kind = part.get("type") if isinstance(part, dict) else None
        known = _FIELDS.get(kind) if isinstance(kind, str) else None
        if known is None:
            raise _wrong(f"{where}.type is none of {', '.join(sorted(_FIELDS))}")
        unknown = next((name for name in part if name != "type" and name not in known), None)
        if unknown is not None:
            raise _wrong(f"{where} has the field {unknown!r:.64}, which is not enforced")
        match kind:
            case "const_string":
                return self._literal(_string(part, "value", where))
            case "any_text":
                return _TEXT
            case "json_schema":
                return self._rule(self._schema(part.get("json_schema")))
            case "regex":
                return self._terminal(self._regex(_string(part, "pattern", where)))
            case "grammar":
                self._count += 1
                name = f"side_{self._count}"
                text = self._grammar(_string(part, "grammar", where))
                self._side.append({"name": name, "lark_grammar": text})
                return f"@{name}"
            case "sequence" | "or":
                between = " " if kind == "sequence" else " | "
                parts = [
                    self._part(element, f"{where}.elements[{i}]", depth + 1)
                    for i, element in enumerate(_list(part, "elements", where))
                ]
                return f"({between.join(parts)})"
            case "tag":
                begin = self._literal(_string(part, "begin", where))
                return f"({begin} {self._inside(part, where, depth)})"
            case "tags_with_separator":
                return self._separated(part, where, depth)
        return self._triggered(part, where, depth)

    def _inside(self, tag: Mapping[str, Any], where: str, depth: int) -> str:
        """The content and the end of a tag."""
        content, end = tag.get("content"), _string(tag, "end", where)
        if end and isinstance(content, dict) and content.get("type") == "any_text":
            return self._text_up_to(end)
        inner = self._part(content, f"{where}.content", depth + 1)
        return f"{inner} {self._literal(end)}"

    def _separated(self, part: Mapping[str, Any], where: str, depth: int) -> str:
        tags = self._tags(part, where)
        one = self._rule(
            " | ".join(self._part(tag, f"{where}.tags[{i}]", depth) for i, tag in enumerate(tags))
        )
        separator = self._literal(_string(part, "separator", where))
        many = one if part.get("stop_after_first") else f"{one} ({separator} {one})*"
        return f"({many})" if part.get("at_least_one") else f"({many})?"

    def _triggered(self, part: Mapping[str, Any], where: str, depth: int) -> str:
        """Free text in which a trigger begins a tag."""
        triggers = [trigger for trigger in _list(part, "triggers", where) if trigger]
        if not triggers or not all(isinstance(trigger, str) for trigger in triggers):
            raise _wrong(f"{where}.triggers must be non-empty strings")
        by_trigger: dict[str, list[str]] = {}
        for i, tag in enumerate(self._tags(part, where)):
            begin = _string(tag, "begin", f"{where}.tags[{i}]")
            trigger = next((text for text in triggers if begin.startswith(text)), None)
            if trigger is None:
                raise _wrong(f"{where}.tags[{i}].begin starts with none of the triggers")
            rest = self._literal(begin[len(trigger) :])
            inside = self._inside(tag, f"{where}.tags[{i}]", depth)
            by_trigger.setdefault(trigger, []).append(f"{rest} {inside}")
        kinds = [
            f"{self._text_up_to(trigger)} {self._rule(' | '.join(rests))}"
            for trigger, rests in by_trigger.items()
        ]
        tag = self._rule(" | ".join(kinds))
        if part.get("stop_after_first"):
            return tag if part.get("at_least_one") else f"({tag} | {_TEXT})"
        return f"({tag}{'+' if part.get('at_least_one') else '*'} {_TEXT})"

    def _tags(self, part: Mapping[str, Any], where: str) -> Sequence[Any]:
        tags = _list(part, "tags", where)
        for i, tag in enumerate(tags):
            if not isinstance(tag, dict) or tag.get("type", "tag") != "tag":
                raise _wrong(f"{where}.tags[{i}] is no tag")
            tag["type"] = "tag"
        return tags

    def _text_up_to(self, mark: str) -> str:
        """Text that does not hold `mark`, then the mark."""
        pieces = self._pieces(mark)
        if len(pieces) == 1 and pieces[0].startswith('"'):
            self._count += 1
            self._rules.append(f"upto_{self._count}[lazy]: {_TEXT} {pieces[0]}")
            return f"upto_{self._count}"
        if pieces[0].startswith('"'):
            self._count += 1
            self._rules.append(f"upto_{self._count}[lazy]: {_TEXT} {pieces[0]}")
            return " ".join([f"upto_{self._count}", *pieces[1:]])
        return " ".join([_TEXT, *pieces])

    def _literal(self, text: str) -> str:
        return " ".join(self._pieces(text)) if text else ""

    def _pieces(self, text: str) -> list[str]:
        parts = self._special_pattern.split(text) if self._special_pattern else [text]
        return [
            f"<[{self._special[part]}]>" if part in self._special else json.dumps(part)
            for part in parts
            if part
        ]

    def _rule(self, body: str) -> str:
        self._count += 1
        self._rules.append(f"part_{self._count}: {body}")
        return f"part_{self._count}"

    def _terminal(self, body: str) -> str:
        self._count += 1
        self._rules.append(f"TERMINAL_{self._count}: {body}")
        return f"TERMINAL_{self._count}"


def _modern(whole: Mapping[str, Any]) -> dict[str, Any]:
    """The older form as a format."""
    structures = _list(whole, "structures", "structural_tag")
    tags = []
    for i, structure in enumerate(structures):
        if not isinstance(structure, dict):
            raise _wrong(f"structures[{i}] is no object")
        tags.append(
            {
                "type": "tag",
                "begin": _string(structure, "begin", f"structures[{i}]"),
                "content": {"type": "json_schema", "json_schema": structure.get("schema", {})},
                "end": _string(structure, "end", f"structures[{i}]"),
            }
        )
    triggers = _list(whole, "triggers", "structural_tag")
    return {"type": "triggered_tags", "triggers": triggers, "tags": tags}


def _string(part: Mapping[str, Any], name: str, where: str) -> str:
    value = part.get(name)
    if not isinstance(value, str):
        raise _wrong(f"{where}.{name} must be a string")
    return value


def _list(part: Mapping[str, Any], name: str, where: str) -> list[Any]:
    value = part.get(name)
    if not isinstance(value, list) or not value:
        raise _wrong(f"{where}.{name} must be a list that is not empty")
    return value


def _wrong(text: str) -> GrammarError:
    return GrammarError(f"structural_tag: {text}", _FIELD)
