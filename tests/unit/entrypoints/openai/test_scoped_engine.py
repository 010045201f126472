"""What a client's key and trace add to its requests."""

import pytest


async def salt_of(client, key, **fields):
    reply = await client.complete(
        max_tokens=1, headers={"authorization": f"Bearer {key}"}, **fields
    )
    assert reply.status_code == 200, reply.text
    return client.engine.seen[-1][2]["cache_salt"]


@pytest.fixture
async def client(make_client):
    client = await make_client(server={"api_key": ("one", "two")})
    complete = client.complete

    async def with_headers(*args, headers, **fields):
        client.headers.update(headers)
        return await complete(*args, **fields)

    client.complete = with_headers
    return client


async def test_clients_with_different_keys_share_no_prefix(client):
    one, again, two = [await salt_of(client, key) for key in ("one", "one", "two")]
    assert one == again
    assert one != two


async def test_a_clients_own_salts_separate_further(client):
    salts = {await salt_of(client, key, cache_salt=s) for key in ("one", "two") for s in ("x", "y")}
    assert len(salts) == 4
    reply = await client.complete(headers={"authorization": "Bearer one"}, cache_salt="")
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "cache_salt"


async def test_with_one_key_all_share(make_client):
    client = await make_client(server={"api_key": ("one",)})
    client.headers["authorization"] = "Bearer one"
    await client.complete(max_tokens=1)
    assert client.engine.seen[-1][2]["cache_salt"] is None


async def test_the_trace_of_the_client_goes_along(make_client):
    client = await make_client()
    client.headers["traceparent"] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await client.complete(max_tokens=1)
    headers = client.engine.seen[-1][2]["trace_headers"]
    assert headers == {"traceparent": client.headers["traceparent"]}
