"""Traces of the engine, asked for over HTTP."""

import pytest

PATHS = ["/start_profile", "/stop_profile"]


async def test_a_trace_is_started_and_stopped(make_client):
    server = {"profiler_config": {"profiler": "torch", "torch_profiler_dir": "/traces"}}
    client = await make_client(server=server)
    assert (await client.post("/stop_profile")).status_code == 409
    assert (await client.post("/start_profile")).status_code == 200
    assert (await client.post("/start_profile")).status_code == 409
    reply = await client.post("/stop_profile")
    assert reply.json() == {"trace": "/traces/trace"}


@pytest.mark.parametrize("path", PATHS)
async def test_only_where_the_operator_allows_it(make_client, path):
    client = await make_client()
    reply = await client.post(path)
    assert reply.status_code == 404
    assert "--profiler-config" in reply.text
