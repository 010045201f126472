"""Tools: the functions that a request offers, as parsers and grammars need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_TYPE_NAMES = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
_MOST_ALTERNATIVES = 64


@dataclass(frozen=True, slots=True)
class Tool:
    """One function. `parameters` is the JSON schema of its arguments; None: any object."""

    name: str
    parameters: Mapping[str, Any] | None = None
    strict: bool = False


@dataclass(frozen=True)
class Tools:
    """The functions of a request, by name."""

    tools: Sequence[Tool] = ()
    _by_name: Mapping[str, Tool] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {tool.name: tool for tool in self.tools})

    def __bool__(self) -> bool:
        return bool(self.tools)

    def get(self, name: str) -> Tool | None:
        """The tool of this name."""
        return self._by_name.get(name)

    def types(self, name: str, parameter: str) -> frozenset[str]:
        """The JSON types that a parameter may have; empty if nothing is said about them."""
        tool = self.get(name)
        properties = (tool.parameters or {}).get("properties") if tool else None
        schema = properties.get(parameter) if isinstance(properties, Mapping) else None
        return schema_types(schema)


NO_TOOLS = Tools()


def schema_types(schema: Any) -> frozenset[str]:
    """The types a JSON schema allows at its top, as far as it names them or shows values."""
    found: set[str] = set()
    queue = [schema]
    for count, part in enumerate(queue):
        if not isinstance(part, Mapping) or count > _MOST_ALTERNATIVES:
            continue
        named = part.get("type")
        names = named if isinstance(named, list) else [named]
        found.update(name for name in names if isinstance(name, str) and name in _TYPE_NAMES)
        if named is None:
            values = part.get("enum")
            found.update(map(_type_of, values if isinstance(values, list) else []))
            if "const" in part:
                found.add(_type_of(part["const"]))
            for key in ("anyOf", "oneOf", "allOf"):
                parts = part.get(key)
                queue.extend(parts if isinstance(parts, list) else ())
    return frozenset(found)


def _type_of(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case None:
            return "null"
        case _:
            return "object"
