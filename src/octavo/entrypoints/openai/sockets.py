"""The listening socket, bound before the model loads, so that a taken port is told at once."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from octavo.config.server import ServerArgs
from octavo.types.errors import ConfigError

_ANY = ("", "0.0.0.0", "::")


@contextmanager
def listening_sockets(args: ServerArgs) -> Iterator[list[socket.socket]]:
    """A socket per API process, bound to the server's address; nobody can connect yet.

    On TCP the kernel spreads connections over them by SO_REUSEPORT; on a Unix socket every
    process has the same one. The file of a Unix socket goes at the end. Raises ConfigError if the
    address is taken or is not of this machine.
    """
    if args.uds is None:
        sockets = _bind_all(args.host, args.port, args.api_server_count)
    else:
        sockets = [_bind_unix(args.uds)] * args.api_server_count
    try:
        yield sockets
    finally:
        for bound in sockets:
            bound.close()
        if args.uds is not None:
            Path(args.uds).unlink(missing_ok=True)


@contextmanager
def listening_socket(args: ServerArgs) -> Iterator[socket.socket]:
    """The first of them, for a server of one process."""
    with listening_sockets(args) as sockets:
        yield sockets[0]


def base_url(bound: socket.socket, args: ServerArgs) -> str:
    """Where a person on this machine reaches the server."""
    if bound.family == socket.AF_UNIX:
        return f"unix:{args.uds}"
    host, port = bound.getsockname()[:2]
    if host in _ANY:
        host = "localhost"
    elif ":" in host:
        host = f"[{host}]"
    scheme = "https" if args.ssl_certfile else "http"
    return f"{scheme}://{host}:{port}{args.root_path}"


def _bind_all(host: str | None, port: int, count: int) -> list[socket.socket]:
    # The first bind is exclusive, so that a port of another server is never shared by mistake.
    first = _bind_tcp(host, port)
    if count == 1:
        return [first]
    port = first.getsockname()[1]
    first.close()
    return [_bind_tcp(host, port, shared=True) for _ in range(count)]


def _bind_tcp(host: str | None, port: int, *, shared: bool = False) -> socket.socket:
    shown = host or "0.0.0.0"
    try:
        found = socket.getaddrinfo(shown, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(f"host={shown!r} is no address of this machine: {error}") from None
    family, kind, protocol, _, address = found[0]
    bound = socket.socket(family, kind, protocol)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} of {shown} is in use; stop the program that has it, or choose "
                "another one with --port"
            ) from None
        raise ConfigError(f"can't listen on {shown}, port {port}: {error.strerror}") from None
    return bound


def _bind_unix(path: str) -> socket.socket:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError as error:
            # Nobody listens: the socket was left behind.
            if error.errno == errno.ECONNREFUSED and Path(path).is_socket():
                with suppress(OSError):
                    Path(path).unlink()
        else:
            raise ConfigError(f"uds={path!r} is in use by another server; choose another path")
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(path)
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"can't listen on uds={path!r} ({error.strerror or error}); choose another path"
        ) from None
    return bound
