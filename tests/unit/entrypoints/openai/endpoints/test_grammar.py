"""/v1/grammar/check."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"response_format": {"type": "text"}}, {"valid": True}),
        ({"response_format": {"type": "json_object"}}, {"valid": True, "kind": "json_object"}),
        ({"structured_outputs": {"regex": "a+"}}, {"valid": True, "kind": "regex"}),
        (
            {"structured_outputs": {"regex": "[a-"}},
            {"valid": False, "param": "structured_outputs.regex"},
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}},
            {"valid": False, "param": "response_format.json_schema.schema"},
        ),
        ({"structured_outputs": {"yaml": ""}}, {"valid": False, "param": "structured_outputs"}),
    ],
)
async def test_verdicts(client, body, expected):
    reply = await client.post("/v1/grammar/check", json=body)
    assert reply.status_code == 200, reply.text
    assert reply.json() | expected == reply.json()
    assert (reply.json()["error"] is None) == expected["valid"]


async def test_nothing_to_check_is_a_fault(client):
    reply = await client.post("/v1/grammar/check", json={})
    assert reply.status_code == 400
