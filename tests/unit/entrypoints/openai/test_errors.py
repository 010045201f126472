"""What clients are told about errors."""

import json
import logging

import pytest
from starlette.exceptions import HTTPException

from octavo.entrypoints.openai import errors
from octavo.entrypoints.openai.errors import (
    BodyTooLargeError,
    ServerStoppingError,
    describe,
    in_client_words,
    without_paths,
)
from octavo.types.errors import (
    EngineDeadError,
    GenerationError,
    NotFoundError,
    QueueFullError,
    RequestError,
)
from octavo.utils.logging import _JsonFormatter


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (RequestError("no", "n"), 400, "BadRequestError"),
        (NotFoundError("no"), 404, "NotFoundError"),
        (BodyTooLargeError("no"), 413, "BadRequestError"),
        (QueueFullError("no"), 503, "ServiceUnavailableError"),
        (ServerStoppingError("no"), 503, "ServiceUnavailableError"),
        (EngineDeadError("no"), 503, "ServiceUnavailableError"),
        (GenerationError("no"), 500, "InternalServerError"),
        (GenerationError("no", "structured_outputs"), 400, "BadRequestError"),
        (HTTPException(405, headers={"Allow": "GET"}), 405, "BadRequestError"),
        (ValueError("no"), 500, "InternalServerError"),
    ],
)
def test_status_and_body(error, status, kind):
    failure = describe(error, "r1")
    body = json.loads(failure.body)["error"]
    assert failure.status == status
    assert body["code"] == status
    assert body["type"] == kind
    assert set(body) == {"message", "type", "param", "code"}


def test_param_names_the_field():
    assert json.loads(describe(RequestError("no", "n"), "r1").body)["error"]["param"] == "n"


def test_headers():
    assert (b"allow", b"GET") in describe(HTTPException(405, headers={"Allow": "GET"}), "r").headers
    assert (b"retry-after", b"1") in describe(QueueFullError("full"), "r").headers


def test_unexpected_errors_tell_only_the_id():
    failure = describe(FileNotFoundError("/srv/models/x/config.json"), "r42")
    assert b"r42" in failure.body
    assert b"/srv" not in failure.body


def test_a_generation_error_loses_its_paths():
    failure = describe(GenerationError("plug-in /opt/x/plug.py failed"), "r")
    assert json.loads(failure.body)["error"]["message"] == "plug-in plug.py failed"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see /a/b/c.py:12", "see c.py:12"),
        ("'/root/model' is gone", "'model' is gone"),
        ("use /v1 or 3/4 or http://a/b/c", "use /v1 or 3/4 or http://a/b/c"),
    ],
)
def test_without_paths(text, expected):
    assert without_paths(text) == expected


def test_names_of_the_engine_become_fields_of_the_request():
    names = {"max_tokens": "max_completion_tokens", "prompt": "messages"}
    error = RequestError("max_tokens=9 does not fit; lower max_tokens", "max_tokens")
    said = in_client_words(error, names)
    assert str(said) == "max_completion_tokens=9 does not fit; lower max_completion_tokens"
    assert said.param == "max_completion_tokens"
    said = in_client_words(RequestError("the prompt is empty", "prompt"), names)
    assert (str(said), said.param) == ("the prompt is empty", "messages")
    said = in_client_words(RequestError("max_tokens_x", None), names)
    assert (str(said), said.param) == ("max_tokens_x", None)


@pytest.mark.parametrize(
    ("error", "level", "remedy"),
    [
        (RequestError("the prompt is: my secret", "prompt"), "INFO", None),
        (QueueFullError("full"), "ERROR", "max-waiting-requests"),
        (GenerationError("NaN logits"), "ERROR", "send this one again"),
        (EngineDeadError("device lost"), "ERROR", "start the server again"),
        (ValueError("no"), "ERROR", "report"),
    ],
)
def test_one_line_in_the_log_with_the_id_and_what_helps(monkeypatch, error, level, remedy):
    lines = []
    monkeypatch.setattr(errors.logger, "handle", lines.append)
    monkeypatch.setattr(errors.logger, "level", logging.INFO)
    describe(error, "r42")
    (line,) = lines
    assert line.levelname == level
    assert line.fields["request_id"] == "r42"
    assert "r42" in line.getMessage()
    assert "secret" not in str(line.fields) + line.getMessage()
    if remedy:
        assert remedy in line.fields["remedy"]
        assert type(error).__name__ in line.fields["cause"]


def test_the_fields_of_a_line_are_json():
    record = logging.LogRecord("octavo", logging.ERROR, "f", 1, "text", (), None)
    record.fields = {"request_id": "r42", "status": 500}
    entry = json.loads(_JsonFormatter().format(record))
    assert (entry["message"], entry["request_id"], entry["status"]) == ("text", "r42", 500)
