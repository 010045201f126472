"""JSON schemas before they are compiled: every keyword is one that will be enforced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from octavo.structured_output.interface import GrammarError
from octavo.structured_output.string_forms import FORMAT_PATTERNS, ecma_pattern
from octavo.types.sampling_params import StructuredOutputsParams

MAX_NODES = 50_000  # subschemas
MAX_REPEAT = 10_000  # of minItems, maxItems, minProperties, maxProperties

# Keywords whose values are schemas, tables of schemas, lists of schemas.
_SCHEMAS = frozenset({"additionalProperties", "additionalItems", "items"})
_TABLES = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_ENFORCED = (
    _SCHEMAS
    | _TABLES
    | _LISTS
    | {
        "$ref",
        "const",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
        "required",
        "type",
    }
)
# Keywords that say nothing about which values are valid.
_REMARKS = frozenset(
    {
        "$anchor",
        "$comment",
        "$dynamicAnchor",  # a mark for $dynamicRef, which is refused
        "$id",
        "$schema",
        "$vocabulary",
        "default",
        "deprecated",
        "description",
        "example",
        "examples",
        "id",
        "readOnly",
        "title",
        "writeOnly",
    }
)
_COUNTS = (
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
)
# Keywords that say something about the same value beside its own properties and items.
_APPLICATORS = frozenset({"$ref", "allOf", "anyOf", "oneOf", "contains", "if", "dependentSchemas"})
_WITHOUT_TYPE = frozenset({"enum", "const", "$ref", "anyOf"})
# Keywords that are enforced only where they ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "uniqueItems": (False,),
    "nullable": (False,),
    "unevaluatedProperties": (True,),
    "unevaluatedItems": (True,),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "dependencies": ({},),
    "propertyNames": (True, {}),
}
_HINTS = {
    "nullable": 'list "null" among the types',
    "minContains": "use minItems with items",
    "contains": "use items",
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a library enforces less than JSON Schema says.

    `refused` are keywords; `formats` those it knows (None: it refuses others by itself). With
    `single`, it reads one kind of constraint per schema: enum, const, $ref and anyOf must stand
    alone, others beside a type, and required properties among those that are described.
    """

    refused: frozenset[str] = frozenset()
    formats: frozenset[str] | None = None
    single: bool = False


WHOLE = Dialect()


def read_schema(spec: StructuredOutputsParams, dialect: Dialect = WHOLE) -> Any:
    """The schema of `json`, checked, its neutral keywords left out. Raises GrammarError."""
    try:
        schema = msgspec.json.decode(spec.json) if isinstance(spec.json, str) else spec.json
    except (msgspec.DecodeError, RecursionError) as error:
        raise GrammarError(f"json is no JSON text: {error}", "json") from None
    return checked_schema(schema, spec.disable_additional_properties is True, dialect)


def checked_schema(schema: Any, closed: bool = False, dialect: Dialect = WHOLE) -> Any:
    """`schema` as it will be enforced; it is changed in place.

    `closed`: objects that name properties have no others, unless they say so themselves. Raises
    GrammarError naming the keyword that can't be enforced.
    """
    queue: list[tuple[str, Any]] = [("schema", schema)]
    old = not (isinstance(schema, dict) and "/20" in str(schema.get("$schema")))
    while queue:
        where, node = queue.pop()
        if isinstance(node, bool):
            continue
        if not isinstance(node, dict):
            raise GrammarError(f"json: {where} must be an object or a boolean", "json")
        _settle(node)
        _check_keywords(node, where, dialect)
        if old and where != "schema" and "$ref" in node and "$id" in node:
            raise GrammarError(
                f"json: $id at {where} stands beside $ref, where drafts up to 7 do not read it and "
                "later ones do; leave it out, or name a later draft in $schema",
                "json",
            )
        if dialect.single:
            _check_single(node, where)
        if closed and "properties" in node:
            node.setdefault("additionalProperties", False)
        if not dialect.single:
            _spell_out(node)
        queue.extend(_subschemas(node, where))
        if len(queue) > MAX_NODES:
            raise GrammarError(f"json has more than {MAX_NODES} subschemas", "json")
    return schema


def _settle(node: dict[str, Any]) -> None:
    """Write a node as others write it: counts without a fraction, and no word of the unevaluated
    where a plainer one says the same.
    """
    for name in _COUNTS:
        value = node.get(name)
        if isinstance(value, float) and value.is_integer():
            node[name] = int(value)
    node.pop("$dynamicAnchor", None)
    if _APPLICATORS.isdisjoint(node):
        rest = "additionalItems" if isinstance(node.get("items"), list) else "items"
        for name, plain in (
            ("unevaluatedProperties", "additionalProperties"),
            ("unevaluatedItems", rest),
        ):
            if name in node:
                value = node.pop(name)
                node.setdefault(plain, value)


def _spell_out(node: dict[str, Any]) -> None:
    """Have formats and patterns enforced in full; see string_forms."""
    if isinstance(node.get("pattern"), str):
        node["pattern"] = ecma_pattern(node["pattern"])
    if isinstance(node.get("patternProperties"), dict):
        parts = node["patternProperties"]
        node["patternProperties"] = {ecma_pattern(key): part for key, part in parts.items()}
    exact = FORMAT_PATTERNS.get(node.get("format", ""))
    if exact is None:
        return
    del node["format"]
    if "pattern" not in node:
        node["pattern"] = exact
    elif isinstance(node.setdefault("allOf", []), list):
        node["allOf"].append({"pattern": exact})


def _check_keywords(node: dict[str, Any], where: str, dialect: Dialect) -> None:
    for name in list(node):
        value = node[name]
        if name in _NEUTRAL and value in _NEUTRAL[name]:
            del node[name]
        elif name in dialect.refused or name not in _ENFORCED | _REMARKS:
            if name.startswith("x-") and name != "x-guidance":
                continue
            hint = f" ({_HINTS[name]})" if name in _HINTS else ""
            raise GrammarError(
                f"json: the keyword {name!r:.64} at {where} is not enforced by this server; "
                f"leave it out{hint}",
                "json",
            )
    required, shape = node.get("required", []), node.get("format", "")
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise GrammarError(f"json: required at {where} must be a list of strings", "json")
    if not isinstance(shape, str):
        raise GrammarError(f"json: format at {where} must be a string", "json")
    for name in ("exclusiveMinimum", "exclusiveMaximum"):
        if isinstance(node.get(name), bool):
            raise GrammarError(
                f"json: {name} at {where} must be a number, as since draft 6", "json"
            )
    for name in ("minItems", "maxItems", "minProperties", "maxProperties"):
        value = node.get(name)
        if isinstance(value, int | float) and value > MAX_REPEAT:
            raise GrammarError(f"json: {name} at {where} is above {MAX_REPEAT}", "json")
    if dialect.formats is not None and shape and shape not in dialect.formats:
        raise GrammarError(f"json: the format at {where} is not enforced by this server", "json")
    if isinstance(node.get("items"), list) and "prefixItems" in node:
        raise GrammarError(f"json: {where} has prefixItems and a list of items", "json")
    if "additionalItems" in node and not isinstance(node.get("items"), list):
        raise GrammarError(
            f"json: additionalItems at {where} means nothing without a list of items; use items",
            "json",
        )


def _check_single(node: dict[str, Any], where: str) -> None:
    stated = {name for name in node if name in _ENFORCED} - {"$defs", "definitions"}
    for name in ("enum", "const", "$ref", "anyOf"):
        others = stated - {name}
        if name in stated and others:
            raise GrammarError(
                f"json: {name} at {where} stands with {sorted(others)[0]}, which is not enforced "
                "by this server; leave one out",
                "json",
            )
    if stated - _WITHOUT_TYPE and "type" not in stated:
        raise GrammarError(
            f"json: {where} says no type, without which this server enforces nothing more", "json"
        )
    missing = set(node.get("required", ())) - set(node.get("properties", ()))
    if missing:
        raise GrammarError(
            f"json: {where} requires {sorted(missing)[0]!r:.64}, which is none of its properties; "
            "this server does not enforce that",
            "json",
        )


def _subschemas(node: dict[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    for name, value in node.items():
        place = f"{where}.{name}"
        if name in _TABLES:
            if not isinstance(value, dict):
                raise GrammarError(f"json: {place} must be an object", "json")
            for key, part in value.items():
                yield f"{place}.{key:.64}", part
        elif name in _LISTS or (name == "items" and isinstance(value, list)):
            if not isinstance(value, list):
                raise GrammarError(f"json: {place} must be a list", "json")
            for index, part in enumerate(value):
                yield f"{place}[{index}]", part
        elif name in _SCHEMAS:
            yield place, value
