"""Servers as child processes: started, waited for, ended."""

import sys
import textwrap
import urllib.request

import pytest

from octavo.bench.server_process import ServerProcess, octavo_server
from octavo.types.errors import ConfigError, OctavoError

SERVER = """
    import http.server, sys
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"here")
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def python(code, *words):
    return [sys.executable, "-c", textwrap.dedent(code), *words]


def test_a_server_is_ready_within_and_gone_after():
    with ServerProcess(python(SERVER, "{port}")) as server:
        process = server._process
        assert urllib.request.urlopen(server.url).read() == b"here"
        assert server.start_seconds > 0
        assert process.poll() is None
    assert process.poll() is not None
    server.stop()


def test_a_server_that_ends_early_says_why():
    code = "import sys; print('no luck', file=sys.stderr); sys.exit(3)"
    with (
        pytest.raises(OctavoError, match=r"(?s)ended early.*no luck"),
        ServerProcess(python(code, "{port}")),
    ):
        pass


def test_a_server_that_never_answers_is_ended():
    server = ServerProcess(python("import time; time.sleep(60)", "{port}"), ready_seconds=0.3)
    with pytest.raises(OctavoError, match=r"not ready after 0\.3 s"), server:
        pass
    assert server._process is None


def test_a_command_says_where_the_port_goes():
    with pytest.raises(ConfigError, match=r"\{port\}"):
        ServerProcess("serve --port 8000")


def test_options_become_flags():
    command = octavo_server(
        {"model": "m", "enforce_eager": True, "async_scheduling": False, "revision": None,
         "served_model_name": ("a", "b"), "hf_overrides": {"x": 1}, "max_model_len": "4k"}
    )  # fmt: skip
    words = " ".join(command[1:])
    assert words == (
        "-m octavo.cli.main serve --host 127.0.0.1 --port {port} --model m --enforce-eager "
        '--no-async-scheduling --served-model-name a b --hf-overrides {"x": 1} --max-model-len 4k'
    )
