"""The application as a whole: paths, methods, keys, CORS, body limits, what it imports."""

import subprocess
import sys

import pytest

from octavo.entrypoints.console.pages import console_routes
from octavo.entrypoints.openai.endpoint import ENDPOINTS

OPEN = {"/health", "/ping", *(route.path for route in console_routes())}


def all_paths():
    return [endpoint for name in ENDPOINTS for endpoint in ENDPOINTS.get(name)]


async def test_an_unknown_path_is_404_in_the_apis_form(client):
    for path in ("/v1/nothing", "/v1/chat/completions/", "//v1/models"):
        reply = await client.get(path)
        assert reply.status_code == 404
        assert reply.json()["error"]["code"] == 404
        assert reply.json()["error"]["message"].endswith("is not served here")


async def test_a_wrong_method_is_405_and_tells_the_right_one(client):
    reply = await client.get("/v1/completions")
    assert reply.status_code == 405
    assert "POST" in reply.headers["allow"]
    assert reply.json()["error"]["code"] == 405
    message = reply.json()["error"]["message"]
    assert message == "GET /v1/completions is not served here; it takes POST"


async def test_every_path_but_a_few_needs_the_key(make_client):
    client = await make_client(server={"api_key": ("one", "two")})
    for endpoint in all_paths():
        for method in endpoint.methods:
            path = endpoint.path.replace("{model:path}", "m")
            for headers in ({}, {"authorization": "Bearer wrong"}):
                reply = await client.request(method, path, headers=headers)
                assert (reply.status_code == 401) == (endpoint.path not in OPEN), path
            for key in ("one", "two"):
                reply = await client.request(
                    method, path, headers={"authorization": f"Bearer {key}"}
                )
                assert reply.status_code != 401
    assert (await client.get("/nothing")).status_code == 401


async def test_keys_of_the_environment(make_client, monkeypatch):
    monkeypatch.setenv("OCTAVO_API_KEY", "three, four")
    client = await make_client(server={"api_key": ("one",)})
    for key, status in (("one", 200), ("three", 200), ("four", 200), ("three, four", 401)):
        headers = {"authorization": f"Bearer {key}"}
        assert (await client.get("/v1/models", headers=headers)).status_code == status


async def test_browsers_may_ask_without_a_key_and_get_cors_headers(make_client):
    client = await make_client(server={"api_key": ("one",), "allowed_origins": ("http://a",)})
    asked = {"origin": "http://a", "access-control-request-method": "POST"}
    reply = await client.options("/v1/completions", headers=asked)
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == "http://a"
    refused = await client.get("/v1/models", headers={"origin": "http://a"})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "http://a"
    other = await client.get("/health", headers={"origin": "http://b"})
    assert "access-control-allow-origin" not in other.headers


async def test_request_ids_in_headers_also_of_errors(make_client):
    client = await make_client(server={"enable_request_id_headers": True})
    for path in ("/health", "/nothing"):
        reply = await client.get(path, headers={"x-request-id": "mine"})
        assert reply.headers["x-request-id"] == "mine"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"prompt": "a", "temperature": NaN}',
     b'{"prompt": "x \\ud83d y"}', b'{"tools": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
     b'{"prompt": ' + b"9" * 100_000 + b"}"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize"])
async def test_no_body_brings_the_server_down(client, path, body):
    reply = await client.post(path, content=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["message"]
    assert (await client.complete(max_tokens=1)).status_code == 200


async def test_a_large_body_is_parsed_too(client):
    reply = await client.complete("a", max_tokens=1, user="x" * 200_000)
    assert reply.status_code == 200


async def test_a_body_above_the_limit_is_413(client):
    reply = await client.post("/v1/completions", content=b" " * (33 << 20))
    assert reply.status_code == 413
    assert reply.json()["error"]["code"] == 413


async def test_strict_fields(make_client):
    client = await make_client(server={"strict_fields": True})
    reply = await client.complete(sparkle=1)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "sparkle"


async def test_an_unexpected_error_is_told_without_its_text(client, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("secret of /srv/models")

    monkeypatch.setattr(client.engine, "generate", broken)
    reply = await client.complete()
    assert reply.status_code == 500
    assert "secret" not in reply.text


def test_the_server_imports_no_heavy_library():
    code = (
        "import sys, octavo.entrypoints.openai.serve;"
        "from octavo.entrypoints.openai.endpoint import ENDPOINTS;"
        "[ENDPOINTS.get(name) for name in ENDPOINTS];"
        "heavy = {'torch', 'transformers', 'triton', 'pydantic', 'fastapi', 'openai'};"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
