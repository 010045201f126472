"""What a request says about the shape of its answer: response_format and structured_outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from octavo.types.errors import RequestError
from octavo.types.sampling_params import StructuredOutputsParams

_SCHEMA_FIELDS = frozenset({"name", "description", "schema", "strict"})
_INTERNAL = ("reasoning",)


def read_structure(
    response_format: Mapping[str, Any] | None, structured_outputs: Mapping[str, Any] | None
) -> StructuredOutputsParams | None:
    """The constraint that a request asks for; None if it asks for none. Raises RequestError."""
    shape = _of_format(response_format) if response_format is not None else None
    if not structured_outputs:
        return shape
    if shape is not None:
        raise RequestError(
            "response_format and structured_outputs both say what the answer looks like; set one",
            "structured_outputs",
        )
    return _of_fields(structured_outputs)


def structure_names(response_format: Mapping[str, Any] | None) -> Mapping[str, str]:
    """Fields of structured_outputs -> what a client that uses response_format calls them."""
    if not response_format or response_format.get("type") == "text":
        return {}
    return {
        "structured_outputs.json": "response_format.json_schema.schema",
        "structured_outputs.json_object": "response_format",
        "structured_outputs.structural_tag": "response_format",
    }


def _of_format(shape: Mapping[str, Any]) -> StructuredOutputsParams | None:
    match shape.get("type"):
        case "text":
            return None
        case "json_object":
            return StructuredOutputsParams(json_object=True)
        case "structural_tag":
            return StructuredOutputsParams(structural_tag=dict(shape))
        case "json_schema":
            return StructuredOutputsParams(json=_schema(shape.get("json_schema")))
    raise RequestError(
        'response_format.type must be "text", "json_object", "json_schema" or "structural_tag"',
        "response_format.type",
    )


def _schema(inner: Any) -> Any:
    where = "response_format.json_schema"
    if not isinstance(inner, Mapping):
        raise RequestError(f"{where} must be an object with the schema", where)
    unknown = next((name for name in inner if name not in _SCHEMA_FIELDS), None)
    if unknown is not None:
        raise RequestError(f"{where} has the unknown field {unknown!r:.64}", where)
    schema = inner.get("schema")
    if not isinstance(schema, dict | bool):
        raise RequestError(f"{where}.schema must be a JSON schema", f"{where}.schema")
    return schema


def _of_fields(fields: Mapping[str, Any]) -> StructuredOutputsParams:
    known = [name for name in StructuredOutputsParams.__struct_fields__ if name not in _INTERNAL]
    unknown = next((name for name in fields if name not in known), None)
    if unknown is not None:
        raise RequestError(
            f"structured_outputs has the unknown field {unknown!r:.64}; there are: "
            f"{', '.join(known)}",
            "structured_outputs",
        )
    try:
        return msgspec.convert(dict(fields), StructuredOutputsParams)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, RequestError):
            raise error.__cause__ from None
        raise RequestError(f"structured_outputs: {error}", "structured_outputs") from None
