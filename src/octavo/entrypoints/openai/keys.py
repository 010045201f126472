"""ApiKeys: the keys of clients and administrators, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from octavo.config.server import ServerArgs
from octavo.types.errors import ConfigError
from octavo.utils import envs

_MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sent a request: `tenant` tells keys apart without giving them away."""

    tenant: str
    is_admin: bool


class ApiKeys:
    """Digests of the keys; what a client sends is compared with all of them, whatever it is."""

    def __init__(self, keys: Iterable[str], admin_keys: Iterable[str] = ()) -> None:
        self._clients = [_digest(key.encode()) for key in dict.fromkeys(keys)]
        self._admins = [_digest(key.encode()) for key in dict.fromkeys(admin_keys)]

    @classmethod
    def of(cls, args: ServerArgs) -> Self:
        """The keys of the options, the environment and the file. Raises ConfigError."""
        keys = (*(args.api_key or ()), *envs.api_keys(), *_read_file(args.api_key_file))
        admin_keys = (*(args.admin_api_key or ()), *envs.admin_api_keys())
        shared = set(keys) & set(admin_keys)
        if shared:
            raise ConfigError("an admin_api_key is an api_key too; use different ones")
        if not all((*keys, *admin_keys)):
            raise ConfigError("api_key: an empty key would let everybody in; leave it out")
        return cls(keys, admin_keys)

    @property
    def has_clients(self) -> bool:
        """Whether clients need a key."""
        return bool(self._clients)

    @property
    def has_admins(self) -> bool:
        """Whether there is a key for the admin endpoints."""
        return bool(self._admins)

    @property
    def are_several(self) -> bool:
        """Whether there is more than one client to keep apart."""
        return len(self._clients) > 1

    def identify(self, sent: bytes) -> Identity | None:
        """Who has this key; None: nobody."""
        digest = _digest(sent)
        clients = [hmac.compare_digest(digest, known) for known in self._clients]
        admins = [hmac.compare_digest(digest, known) for known in self._admins]
        if not (any(clients) or any(admins)):
            return None
        return Identity(_digest(b"tenant:" + digest).hex()[:32], any(admins))


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _read_file(name: str | None) -> list[str]:
    """The keys in a file, one a line; blank lines and those that begin with # say nothing."""
    if name is None:
        return []
    try:
        with Path(name).open(encoding="utf-8") as file:
            text = file.read(_MAX_FILE_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"api_key_file={name!r} can't be read ({error}); give a file with one key a line"
        ) from None
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys or len(text) > _MAX_FILE_BYTES:
        raise ConfigError(
            f"api_key_file={name!r} holds {len(keys)} keys; one a line, 1 MiB at most"
        )
    return keys
