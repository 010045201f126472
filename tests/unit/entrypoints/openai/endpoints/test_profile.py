"""Traces of the engine, asked for over HTTP."""

import pytest

PATHS = ["/start_profile", "/stop_profile"]
KEYS = {"admin_api_key": ("the-admin-key",), "api_key": ("one",)}
PROFILER = {"profiler_config": {"profiler": "torch", "torch_profiler_dir": "/traces"}}


def key(name):
    return {"authorization": f"Bearer {name}"}


async def test_a_trace_is_started_and_stopped(make_client):
    client = await make_client(server=KEYS | PROFILER)
    client.headers.update(key("the-admin-key"))
    assert (await client.post("/stop_profile")).status_code == 409
    assert (await client.post("/start_profile")).status_code == 200
    assert (await client.post("/start_profile")).status_code == 409
    reply = await client.post("/stop_profile")
    assert reply.json() == {"trace": "/traces/trace"}


@pytest.mark.parametrize("path", PATHS)
async def test_only_where_the_operator_allows_it(make_client, path):
    client = await make_client(server=KEYS)
    reply = await client.post(path, headers=key("the-admin-key"))
    assert reply.status_code == 404
    assert "--profiler-config" in reply.text


@pytest.mark.parametrize("path", PATHS)
async def test_clients_can_not_slow_the_engine_for_everybody(make_client, path):
    client = await make_client(server=KEYS | PROFILER)
    assert (await client.post(path, headers=key("one"))).status_code == 401
    without = await make_client(server=PROFILER)
    assert (await without.post(path)).status_code == 404
