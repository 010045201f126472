"""The few endpoints of the Hugging Face hub that a download uses, over a local folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from support.handler_server import serving

COMMIT = hashlib.sha1(b"first").hexdigest()


class HubServer:
    """Repositories {"owner/name": {file name: bytes}}; `requests` lists what was asked."""

    def __init__(self, repositories: dict[str, dict[str, bytes]]) -> None:
        self.repositories = repositories
        self.gated: set[str] = set()
        self.revisions = {"main": COMMIT, COMMIT: COMMIT, "v1": COMMIT}
        self.requests: list[tuple[str, str]] = []
        self.endpoint = ""


@contextmanager
def hub_server(repositories: dict[str, dict[str, bytes]]) -> Iterator[HubServer]:
    """Serve until the block ends."""
    hub = HubServer(repositories)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def log_message(self, *args: object) -> None:
            pass

        def _answer(self, body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append((self.command, path))
            status, headers, data = answer(hub, path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)

    with serving(Handler) as hub.endpoint:
        yield hub


def answer(hub: HubServer, path: str) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of one request."""
    api, parts = path.startswith("/api/models/"), path.strip("/").split("/")
    if api:
        parts = parts[2:]
    repository, rest = "/".join(parts[:2]), parts[2:]
    if repository not in hub.repositories:
        return error(404, "RepoNotFound")
    if repository in hub.gated and not (api and rest[:1] != ["tree"]):
        return error(403, "GatedRepo")
    files = hub.repositories[repository]
    revision = rest[1] if len(rest) > 1 else "main"
    commit = hub.revisions.get(revision)
    if commit is None:
        return error(404, "RevisionNotFound")
    if api and (not rest or rest[0] == "revision"):
        siblings = [{"rfilename": name} for name in files]
        return reply({"id": repository, "sha": commit, "siblings": siblings, "private": False})
    if api and rest[0] == "tree":
        return reply(
            [
                {"type": "file", "path": name, "size": len(data), "oid": etag(data)}
                for name, data in files.items()
            ]
        )
    name = "/".join(rest[2:])
    if rest[:1] != ["resolve"] or name not in files:
        return error(404, "EntryNotFound")
    data = files[name]
    headers = {"ETag": f'"{etag(data)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
    return 200, headers, data


def etag(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def reply(value: object) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


def error(status: int, code: str) -> tuple[int, dict[str, str], bytes]:
    return status, {"X-Error-Code": code, "X-Error-Message": code}, b""
