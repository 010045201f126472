"""Random JSON schemas whose values end within a few dozen bytes, even of a random model."""

from __future__ import annotations

import random
from typing import Any

PATTERNS = ("^[a-z]{2,4}$", "^[0-9]{3}-[0-9]{2}$", "^(x|yy)z?$")
FORMATS = ("date", "time", "uuid", "ipv4", "date-time")
CONSTANTS: tuple[Any, ...] = ("a", 'b"', "ü", 1, 2.5, None, True, [1], {"x": 1}, "long one")
NAMES = ("a", "bb", "c c", 'd"')
MAX_DEPTH = 3


def random_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """A schema that llguidance enforces; at the top an object or array, like most in use."""
    if depth == 0:
        return rng.choice((_object, _object, _array, _array, _alternatives))(rng, depth)
    makers = [_string, _number, _constants, _plain]
    if depth < MAX_DEPTH:
        makers += [_object, _array, _alternatives]
    return rng.choice(makers)(rng, depth)


def _string(rng: random.Random, depth: int) -> dict[str, Any]:
    shortest = rng.randrange(4)
    return rng.choice(
        [
            {"type": "string", "minLength": shortest, "maxLength": shortest + rng.randrange(5)},
            {"type": "string", "pattern": rng.choice(PATTERNS)},
            {"type": "string", "format": rng.choice(FORMATS)},
        ]
    )


def _number(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randrange(-50, 50)
    schema: dict[str, Any] = {"type": "integer", "minimum": low, "maximum": low + 200}
    if rng.random() < 0.4:
        schema["multipleOf"] = rng.choice([2, 3, 5, 7])
    if rng.random() < 0.3:
        schema["exclusiveMaximum"] = schema.pop("maximum")
    return schema


def _constants(rng: random.Random, depth: int) -> dict[str, Any]:
    if rng.random() < 0.3:
        return {"const": rng.choice(CONSTANTS)}
    return {"enum": rng.sample(CONSTANTS, rng.randrange(1, 5))}


def _plain(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": rng.choice(["boolean", "null", ["boolean", "null"]])}


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(NAMES, rng.randrange(1, len(NAMES)))
    return {
        "type": "object",
        "properties": {name: random_schema(rng, depth + 1) for name in names},
        "required": rng.sample(names, rng.randrange(len(names) + 1)),
        "additionalProperties": False,
    }


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    shortest = rng.randrange(3)
    schema: dict[str, Any] = {
        "type": "array",
        "minItems": shortest,
        "maxItems": shortest + rng.randrange(3),
        "items": random_schema(rng, depth + 1),
    }
    if rng.random() < 0.3:
        schema["prefixItems"] = [random_schema(rng, depth + 1)]
    return schema


def _alternatives(rng: random.Random, depth: int) -> dict[str, Any]:
    if depth == 0 and rng.random() < 0.5:
        part = {"$ref": "#/$defs/part"}
        return {
            "$defs": {"part": random_schema(rng, 1)},
            "type": "array",
            "items": part,
            "minItems": 1,
            "maxItems": 2,
        }
    return {"anyOf": [random_schema(rng, depth + 1) for _ in range(rng.randrange(1, 4))]}
