"""RemoteFolder: the files below a URL of an object store or web server, read by ranges."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import obstore
from obstore.exceptions import BaseError, NotFoundError, NotSupportedError
from obstore.store import HTTPStore, from_url

from octavo.checkpoints.weight_files import INDEXES, SINGLES
from octavo.types.errors import CheckpointError

STREAM_BYTES = 8 << 20  # a piece of a file that can't be read by ranges

# The timeout bounds one request, which is one piece of a file on a slow line.
_CLIENT: Any = {"allow_http": True, "connect_timeout": "10s", "timeout": "600s"}
_RETRY: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
# A web server does not tell its files: these are asked for, and what indexes name.
_SMALL_FILES = (
    "config.json",
    "params.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "tekken.json",
    "chat_template.jinja",
    "chat_template.json",
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
)
_SPLIT = re.compile(r"(?P<stem>.*)-\d{5}-of-(?P<count>\d{5})\.gguf")
_MAX_INDEX_BYTES = 64 << 20
# What to set where a store asks who is there.
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or for a public bucket "
    "AWS_SKIP_SIGNATURE=1",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or for a public bucket GOOGLE_SKIP_SIGNATURE=1",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or for a public container "
    "the name and AZURE_SKIP_SIGNATURE=1",
}
# Without credentials stores ask the machine's cloud for some, at an address only clouds have.
_REFUSED = (" 401", " 403", "Unauth", "Forbidden", "credential", "token request", "169.254.169.254")
_STORES_REASON = re.compile(r"<Code>(\w+)</Code>")
_PARALLEL = 8


class RangesNotSupportedError(Exception):
    """The server gives whole files only."""


@dataclass(frozen=True)
class RemoteFile:
    """A file by its name below the URL. `tag` changes when the content does."""

    name: str
    size: int
    tag: str


class RemoteFolder:
    """A folder, or one .gguf file with the others of its split model, at a URL.

    Credentials and endpoints come from the environment (AWS_*, GOOGLE_*, AZURE_*), as obstore
    reads them. Methods raise CheckpointError, and ConnectionError where nobody answers.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        path = PurePosixPath(unquote(parts.path))
        if ".." in path.parts or parts.query or parts.fragment:
            raise CheckpointError(f"{url} is no plain URL of a folder or .gguf file")
        self.file = path.name if path.suffix == ".gguf" else None
        self.web = parts.scheme in ("http", "https")
        base = url.rsplit("/", 1)[0] if self.file else url.rstrip("/")
        try:
            if self.web:
                self._store: Any = HTTPStore.from_url(
                    base, client_options=_CLIENT, retry_config=_RETRY
                )
            else:
                self._store = from_url(base, client_options=_CLIENT, retry_config=_RETRY)
        except BaseError as error:
            raise CheckpointError(
                f"{url} can't be opened: {_reason(error)}{_advice(url)}"
            ) from error

    def files(self) -> list[RemoteFile]:
        """What is there, without content."""
        if self.file is not None:
            return self._heads(_split_names(self.file), needed=True)
        if self.web:
            found = self._heads([*_SMALL_FILES, *SINGLES, *INDEXES], needed=False)
            indexed = {name for file in found if file.name in INDEXES for name in self._named(file)}
            return found + self._heads(sorted(indexed), needed=True)
        with self._errors(""):
            entries = [entry for page in obstore.list(self._store) for entry in page]
        return [_remote_file(entry["path"], entry) for entry in entries]

    def read(self, file: RemoteFile, start: int, end: int) -> bytes:
        """Bytes [start, end) of a file that has not changed since it was listed.

        Raises RangesNotSupportedError where only whole files can be had.
        """
        if start == end:
            return b""
        with self._errors(file.name):
            try:
                result = obstore.get(self._store, file.name, options={"range": (start, end)})
            except NotSupportedError as error:
                raise RangesNotSupportedError from error
            self._check(file, result.meta)
            data = bytes(result.bytes())
        if len(data) != end - start:
            raise ConnectionError(f"{self.url}: {len(data)} of {end - start} bytes of {file.name}")
        return data

    def stream(self, file: RemoteFile) -> Iterator[bytes]:
        """A whole file, piece by piece."""
        with self._errors(file.name):
            result = obstore.get(self._store, file.name)
            self._check(file, result.meta)
            for piece in result.stream(min_chunk_size=STREAM_BYTES):
                yield bytes(piece)

    def _check(self, file: RemoteFile, meta: Mapping[str, Any]) -> None:
        now = _remote_file(file.name, meta)
        if now.tag != file.tag:
            raise CheckpointError(f"{self.url}: {file.name} changed while it was read; start again")

    def _heads(self, names: list[str], *, needed: bool) -> list[RemoteFile]:
        def head(name: str) -> RemoteFile | None:
            with self._errors(name):
                try:
                    return _remote_file(name, obstore.head(self._store, name))
                except (NotFoundError, FileNotFoundError):
                    if needed:
                        raise
                    return None

        with ThreadPoolExecutor(_PARALLEL) as pool:
            return [file for file in pool.map(head, names) if file is not None]

    def _named(self, index: RemoteFile) -> set[str]:
        """The files that an index names."""
        if index.size > _MAX_INDEX_BYTES:
            raise CheckpointError(f"{self.url}: {index.name} has {index.size} bytes")
        try:
            data = self.read(index, 0, index.size)
        except RangesNotSupportedError:
            data = b"".join(self.stream(index))
        try:
            names = set(msgspec.json.decode(data)["weight_map"].values())
        except (msgspec.DecodeError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{self.url}: {index.name} has no weight_map") from error
        if not all(isinstance(name, str) and PurePosixPath(name).name == name for name in names):
            raise CheckpointError(f"{self.url}: {index.name} names something that is no file name")
        return names

    def _errors(self, name: str) -> _Errors:
        return _Errors(f"{self.url}: {name}" if name else self.url)


class _Errors:
    """Turns the store's errors into ours."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, NotFoundError | FileNotFoundError):
            raise CheckpointError(f"{self._what} does not exist; check the URL") from error
        if isinstance(error, BaseError):
            text = _reason(error)
            if any(mark in text for mark in _REFUSED):
                raise CheckpointError(
                    f"{self._what} may not be read: {text}{_advice(self._what)}"
                ) from error
            raise ConnectionError(f"{self._what}: {text}") from error


def _remote_file(name: str, meta: Mapping[str, Any]) -> RemoteFile:
    # Lists of Azure and of some others leave out the quotes that are in the header of an answer.
    tag = (meta.get("e_tag") or "").strip('"')
    return RemoteFile(name, meta["size"], tag or str(meta.get("last_modified")))


def _split_names(file: str) -> list[str]:
    """All files of a GGUF model that is split, from the name of one."""
    match = _SPLIT.fullmatch(file)
    if match is None:
        return [file]
    count = int(match["count"])
    return [f"{match['stem']}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]


def _reason(error: BaseException) -> str:
    """An error in one line, with the code that stores give in the XML below it."""
    text = str(error)
    first = (text.splitlines() or [type(error).__name__])[0]
    code = _STORES_REASON.search(text)
    return first.partition(": <")[0][:500] + (f": {code[1]}" if code else "")


def _advice(what: str) -> str:
    """What to set where a store can't be opened or read, by the URL that `what` begins with."""
    names = _CREDENTIALS.get(what.partition("://")[0])
    return f"; set {names} in the environment" if names else ""
