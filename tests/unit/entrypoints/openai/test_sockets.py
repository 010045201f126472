"""The listening socket, before anything listens."""

import errno
import socket

import pytest

from octavo.config.server import ServerArgs
from octavo.entrypoints.openai.sockets import base_url, listening_socket, listening_sockets
from octavo.types.errors import ConfigError


def test_a_unix_socket_left_behind_is_replaced(tmp_path):
    path = tmp_path / "octavo.sock"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    with listening_socket(ServerArgs(uds=str(path))):
        assert path.is_socket()
    assert not path.exists()


def test_a_file_in_the_place_of_a_unix_socket_is_kept(tmp_path):
    path = tmp_path / "octavo.sock"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="uds"), listening_socket(ServerArgs(uds=str(path))):
        pass
    assert path.read_text() == "mine"


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
def test_an_address_of_another_machine_is_refused(host):
    with pytest.raises(ConfigError, match=host), listening_socket(ServerArgs(host=host, port=0)):
        pass


def test_ipv6():
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        with listening_socket(ServerArgs(host="::1", port=0)) as bound:
            assert bound.family == socket.AF_INET6
    except ConfigError:
        pytest.skip("no IPv6 address here")


@pytest.mark.parametrize(
    ("options", "begin"),
    [
        ({"host": "127.0.0.1"}, "http://127.0.0.1:"),
        ({}, "http://localhost:"),
        ({"ssl_certfile": "cert.pem"}, "https://localhost:"),
    ],
)
def test_the_address_to_show(options, begin):
    args = ServerArgs(port=0, root_path="/llm", **options)
    with listening_socket(args) as bound:
        port = bound.getsockname()[1]
        assert base_url(bound, args) == f"{begin}{port}/llm"


def test_nobody_connects_before_the_server_listens():
    args = ServerArgs(host="127.0.0.1", port=0)
    with listening_socket(args) as bound, socket.socket() as client:
        assert client.connect_ex(bound.getsockname()) == errno.ECONNREFUSED


def test_a_taken_port():
    with listening_socket(ServerArgs(host="127.0.0.1", port=0)) as bound:
        bound.listen()
        port = bound.getsockname()[1]
        args = ServerArgs(host="127.0.0.1", port=port)
        with pytest.raises(ConfigError, match=f"port {port}.*--port"), listening_socket(args):
            pass


def test_several_processes_get_a_socket_each_on_one_port():
    args = ServerArgs(host="127.0.0.1", port=0, api_server_count=3)
    with listening_sockets(args) as sockets:
        ports = {bound.getsockname()[1] for bound in sockets}
        assert len(sockets) == 3
        assert len({bound.fileno() for bound in sockets}) == 3
        (port,) = ports
        for bound in sockets:
            bound.listen()
        for count in (1, 2):
            other = ServerArgs(host="127.0.0.1", port=port, api_server_count=count)
            with pytest.raises(ConfigError, match="in use"), listening_sockets(other):
                pass


def test_several_processes_share_a_unix_socket(tmp_path):
    args = ServerArgs(uds=str(tmp_path / "s"), api_server_count=2)
    with listening_sockets(args) as sockets:
        assert sockets[0] is sockets[1]
    assert not (tmp_path / "s").exists()
