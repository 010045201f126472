"""Start and stop of the HTTP server, the engine faked."""

import json
import shutil
import threading

import httpx
import pytest

from octavo.config.engine_args import EngineArgs
from octavo.config.server import ServerArgs
from octavo.entrypoints.openai.serve import run_server
from octavo.entrypoints.openai.sockets import listening_socket
from octavo.types.errors import ConfigError, EngineDeadError
from support.http_server import wait_until
from support.tiny import tiny_folder

ENDLESS = {"prompt": "a", "max_tokens": 250, "vllm_xargs": {"sleep": 0.05}}


def post_in_thread(server, body):
    replies = []

    def post():
        replies.append(httpx.post(f"{server.url}/v1/completions", json=body, timeout=30))

    thread = threading.Thread(target=post)
    thread.start()
    wait_until(lambda: server.engine.num_running, "the request runs")
    return thread, replies


def test_what_runs_is_told_when_the_server_stops(make_server):
    server = make_server()
    thread, replies = post_in_thread(server, ENDLESS)
    server.stop()
    thread.join()
    assert replies[0].status_code == 503
    assert server.engine.num_running == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")


def test_a_stream_is_told_too(make_server):
    server = make_server()
    with httpx.stream("POST", f"{server.url}/v1/completions", json=ENDLESS | {"stream": True}) as r:
        lines = r.iter_lines()
        next(lines)
        server.loop.call_soon_threadsafe(server.server.stop)
        *_, error, _, done, _ = lines
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == 503
    assert done == "data: [DONE]"


def test_a_dead_engine_ends_every_request_and_then_the_server(make_server):
    server = make_server()
    thread, replies = post_in_thread(server, ENDLESS)
    server.loop.call_soon_threadsafe(server.engine.die, "device lost")
    thread.join()
    assert replies[0].status_code == 503
    server.join(10)
    assert isinstance(server.error, EngineDeadError)
    assert "device lost" in str(server.error)


def test_a_unix_socket(make_server, tmp_path):
    path = tmp_path / "octavo.sock"
    server = make_server(uds=str(path))
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://x") as client:
        assert client.get("/health").status_code == 200
    with pytest.raises(ConfigError, match="in use"), listening_socket(server.args):
        pass
    server.stop()
    assert not path.exists()


def test_a_taken_port_is_told_before_the_model_is_looked_for(server):
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"port {port}.*--port"):
        run_server(None, ServerArgs(host="127.0.0.1", port=port))


def test_tls_files_are_tried_first(tmp_path):
    missing = str(tmp_path / "cert.pem")
    with pytest.raises(ConfigError, match=r"cert\.pem"):
        run_server(None, ServerArgs(ssl_certfile=missing, port=0))
    with pytest.raises(ConfigError, match="ssl_certfile"):
        run_server(None, ServerArgs(ssl_keyfile=missing, port=0))


def test_a_missing_chat_template_is_told_before_the_model_is_looked_for():
    options = EngineArgs(model="/no/such/model", chat_template="no/such/template.jinja")
    with pytest.raises(ConfigError, match=r"no/such/template\.jinja"):
        run_server(options, ServerArgs(port=0))


@pytest.mark.parametrize("template", ["{% for m in messages %}", "{{ messages["])
def test_a_template_that_is_no_template_is_told_before_the_model_is_looked_for(tmp_path, template):
    path = tmp_path / "broken.jinja"
    path.write_text(template)
    for setting in (str(path), template):
        options = EngineArgs(model="/no/such/model", chat_template=setting)
        with pytest.raises(ConfigError, match="not valid Jinja, line 1"):
            run_server(options, ServerArgs(port=0))


def test_the_models_own_template_is_looked_at_before_its_weights(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder(), folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = "{% if %}"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    options = EngineArgs(model=str(folder), load_format="dummy", device="cpu")
    with pytest.raises(ConfigError, match=r"model's chat template.*--chat-template"):
        run_server(options, ServerArgs(port=0))


def test_an_unknown_store_of_responses_is_told_first():
    with pytest.raises(ConfigError, match="responses_store"):
        run_server(None, ServerArgs(responses_store="disk", port=0))


def test_template_variables_that_requests_set_are_refused_first():
    args = ServerArgs(default_chat_template_kwargs={"documents": []}, port=0)
    with pytest.raises(ConfigError, match="documents"):
        run_server(None, args)


def test_a_root_path(make_server):
    server = make_server(root_path="/llm", api_key=("k",))
    base = server.url.removesuffix("/llm")
    for path, status in (("/health", 200), ("/v1/models", 401), ("/", 200)):
        assert httpx.get(base + path).status_code == status
