"""/health, /ping, /version, /load and /metrics over a fake engine."""

import octavo


async def test_health_follows_the_engine(client):
    for path in ("/health", "/ping"):
        assert (await client.get(path)).status_code == 200
    client.engine.die("out of memory")
    for path in ("/health", "/ping"):
        reply = await client.get(path)
        assert reply.status_code == 503
        assert "out of memory" in reply.json()["error"]["message"]


async def test_version(client):
    assert (await client.get("/version")).json() == {"version": octavo.__version__}


async def test_load(client):
    client.engine.metrics.set_gauge("server_load", 3)
    assert (await client.get("/load")).json() == {"server_load": 3}


async def test_metrics(client):
    await client.complete(max_tokens=3)
    text = (await client.get("/metrics")).text
    names = {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")}
    assert any(name.endswith("num_requests_running") for name in names)
    assert any("generation_tokens" in name for name in names)
