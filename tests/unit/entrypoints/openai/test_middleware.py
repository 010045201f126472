"""API keys and request ids."""

import pytest

from octavo.entrypoints.openai.keys import ApiKeys
from octavo.entrypoints.openai.middleware import APIKeyMiddleware, RequestIdMiddleware


async def answer(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
    await send({"type": "http.response.body", "body": b"fine"})


async def call(app, path="/v1/models", headers=(), root_path=""):
    sent = []

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "path": root_path + path,
        "root_path": root_path,
        "headers": list(headers),
    }
    await app(scope, None, send)
    return sent[0]["status"], dict(sent[0]["headers"])


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 401),
        (b"Bearer one", 200),
        (b"bearer two", 200),
        (b"Bearer  two ", 200),
        (b"Bearer three", 401),
        (b"Bearer ", 401),
        (b"Bearer", 401),
        (b"Basic one", 401),
        (b"one", 401),
        (b"Bearer \xff\xfe", 401),
    ],
)
async def test_keys(header, status):
    app = APIKeyMiddleware(answer, ApiKeys(["one", "two"]), ["/health"])
    headers = [] if header is None else [(b"authorization", header)]
    got, answered = await call(app, headers=headers)
    assert got == status
    assert (b"www-authenticate" in answered) == (status == 401)


@pytest.mark.parametrize(
    ("path", "status"),
    [("/health", 200), ("/health/", 401), ("/healthx", 401), ("/HEALTH", 401), ("/x/health", 401),
     ("//health", 401), ("", 401)],
)  # fmt: skip
@pytest.mark.parametrize("root_path", ["", "/api"])
async def test_open_paths_are_exact(path, status, root_path):
    app = APIKeyMiddleware(answer, ApiKeys(["one"]), ["/health"])
    assert (await call(app, path, root_path=root_path))[0] == status


async def test_request_id_of_the_client_comes_back():
    _, headers = await call(RequestIdMiddleware(answer), headers=[(b"x-request-id", b"mine-1")])
    assert headers[b"x-request-id"] == b"mine-1"
    assert headers[b"a"] == b"b"


@pytest.mark.parametrize("bad", [b"two words", b"x" * 200, b"\xff", b""])
async def test_a_request_without_a_usable_id_gets_one(bad):
    _, headers = await call(RequestIdMiddleware(answer), headers=[(b"x-request-id", bad)])
    assert len(headers[b"x-request-id"]) == 32
