"""Constraints over every endpoint for text: they reach the engine, and faults name their field."""

from __future__ import annotations

import pytest

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
BROKEN = {"not": {}}
USER = [{"role": "user", "content": "hi"}]


def fields(path, schema):
    """A request of the endpoint's own form."""
    inner = {"name": "n", "schema": schema}
    if path == "/v1/responses":
        return {"input": "hi", "text": {"format": {"type": "json_schema", **inner}}}
    prompt = {"messages": USER} if "chat" in path else {"prompt": "hi"}
    return prompt | {"response_format": {"type": "json_schema", "json_schema": inner}}


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/v1/chat/completions", "response_format.json_schema.schema"),
        ("/v1/completions", "response_format.json_schema.schema"),
        ("/v1/responses", "text.format.schema"),
    ],
)
async def test_a_schema(client, path, param):
    reply = await client.post(path, json=fields(path, SCHEMA))
    assert reply.status_code == 200, reply.text
    spec = client.engine.seen[-1][1].structured_outputs
    assert spec.json == '{"type":"object","properties":{"a":{"type":"integer"}}}'
    for schema in (BROKEN, 3):
        reply = await client.post(path, json=fields(path, schema))
        assert reply.status_code == 400
        assert reply.json()["error"]["param"] == param


async def test_tokens_in_and_out_take_constraints_too(client):
    def body(regex):
        params = {"max_tokens": 4, "structured_outputs": {"regex": regex}}
        return {"token_ids": [5, 6], "sampling_params": params}

    reply = await client.post("/inference/v1/generate", json=body("a+"))
    assert reply.status_code == 200, reply.text
    assert client.engine.seen[-1][1].structured_outputs.regex == "a+"
    reply = await client.post("/inference/v1/generate", json=body("[a-"))
    assert reply.status_code == 400
