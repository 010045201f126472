"""Values that models write as plain text, turned into the JSON their schema asks for."""

from __future__ import annotations

import json
import re
from typing import Any

from octavo.entrypoints.tool_parsers.literals import JSON_NUMBER, json_of_literal, number

_INTEGER = re.compile(r"[+-]?\d+")
_BOOLEANS = {"true": "true", "True": "true", "false": "false", "False": "false"}
_NULLS = frozenset({"null", "None"})


def json_of_text(text: str, types: frozenset[str]) -> str:
    """The JSON of a value that was written as plain text, by the types its schema allows.

    What fits none of the types becomes a string. Without types: JSON or a Python literal if it is
    one, else a string.
    """
    bare = text.strip()
    written: str | None = None
    if (not types or "null" in types) and bare in _NULLS:
        written = "null"
    elif (not types or "boolean" in types) and bare in _BOOLEANS:
        written = _BOOLEANS[bare]
    elif "number" in types or ("integer" in types and _INTEGER.fullmatch(bare)):
        written = number(bare)
    elif not types and JSON_NUMBER.fullmatch(bare):
        written = bare
    if written is None and bare[:1] in ("{", "[") and (not types or types & {"object", "array"}):
        written = bare if _is_json(bare) else json_of_literal(bare)
    return json.dumps(text, ensure_ascii=False) if written is None else written


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
