"""Endpoints for administrators: served with a key of their own only."""

import asyncio

import pytest

ADMIN = {"authorization": "Bearer the-admin-key"}
PATHS = [("POST", "/abort_requests"), ("POST", "/reset_prefix_cache"), ("GET", "/server_info")]


@pytest.fixture
async def client(make_client):
    return await make_client(server={"admin_api_key": ("the-admin-key",), "api_key": ("one",)})


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_they_need_the_admin_key(client, make_client, method, path):
    for key, status in (("one", 401), ("", 401), ("the-admin-key", 200)):
        headers = {"authorization": f"Bearer {key}"}
        body = {"request_ids": []} if path == "/abort_requests" else None
        reply = await client.request(method, path, headers=headers, json=body)
        assert reply.status_code == status, reply.text
    without = await make_client()
    assert (await without.request(method, path)).status_code == 404


async def test_the_admin_key_opens_everything_else_too(client):
    assert (await client.get("/v1/models", headers=ADMIN)).status_code == 200


async def test_with_an_admin_key_alone_the_rest_stays_open(make_client):
    client = await make_client(server={"admin_api_key": ("the-admin-key",)})
    assert (await client.get("/v1/models")).status_code == 200
    assert (await client.get("/server_info")).status_code == 401


async def test_requests_are_ended_by_the_id_of_their_answer(client):
    headers = {"authorization": "Bearer one", "x-request-id": "mine"}
    body = {"prompt": ["a", "b"], "max_tokens": 200, "vllm_xargs": {"sleep": 0.02}}
    running = asyncio.create_task(client.post("/v1/completions", json=body, headers=headers))
    while client.engine.num_running < 2:
        await asyncio.sleep(0.01)
    assert (await client.post("/reset_prefix_cache", headers=ADMIN)).status_code == 409
    ids = {"request_ids": ["cmpl-mine", "unknown"]}
    assert (await client.post("/abort_requests", json=ids, headers=ADMIN)).status_code == 200
    choices = (await running).json()["choices"]
    assert [choice["finish_reason"] for choice in choices] == ["abort", "abort"]
    assert client.engine.num_running == 0


async def test_the_configuration_hides_keys(client):
    reply = await client.get("/server_info", headers=ADMIN)
    assert reply.json()["engine"]["model"]["max_model_len"] == 256
    assert "the-admin-key" not in reply.text
    assert reply.json()["server"]["api_key"] == ["***"]
