"""Files of requests: what is refused before the model loads, and what comes out."""

import io
import json

import pytest

from octavo.config.server import ServerArgs
from octavo.entrypoints.openai.batch import _paths, answer_all, read_lines
from octavo.types.errors import ConfigError
from support.fake_async_llm import SCRIPT, FakeAsyncLLM


def line(number, url="/v1/completions", **fields):
    body = {"prompt": "a", "max_tokens": number % 5 + 1} if url == "/v1/completions" else {}
    body |= fields
    return {"custom_id": f"r{number}", "method": "POST", "url": url, "body": body}


def write(tmp_path, *lines):
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines))
    return path


async def run(tmp_path, *lines):
    output = io.BytesIO()
    source = read_lines(write(tmp_path, *lines), _paths())
    failed = await answer_all(FakeAsyncLLM(), ServerArgs(), source, output)
    results = [json.loads(text) for text in output.getvalue().splitlines()]
    return failed, {result["custom_id"]: result for result in results}


async def test_every_line_is_answered(tmp_path):
    failed, results = await run(tmp_path, *map(line, range(100)))
    assert failed == 0
    assert len(results) == 100
    for number in range(100):
        response = results[f"r{number}"]["response"]
        assert response["status_code"] == 200
        assert response["body"]["choices"][0]["text"] == SCRIPT[: number % 5 + 1]
        assert response["request_id"] in results[f"r{number}"]["id"]


async def test_each_endpoint_answers_in_its_own_form(tmp_path):
    messages = [{"role": "user", "content": "hi"}]
    failed, results = await run(
        tmp_path,
        line(0, "/v1/chat/completions", messages=messages, max_tokens=3),
        line(1, "/v1/messages", messages=messages, max_tokens=3),
        line(2, "/v1/responses", input="hi", max_output_tokens=3),
        "",
    )
    assert failed == 0
    kinds = [results[f"r{i}"]["response"]["body"] for i in range(3)]
    assert (kinds[0]["object"], kinds[1]["type"], kinds[2]["object"]) == (
        "chat.completion",
        "message",
        "response",
    )


async def test_one_that_fails_fails_alone(tmp_path):
    failed, results = await run(tmp_path, line(0, temperature=9), line(1))
    assert failed == 1
    assert results["r0"]["response"]["status_code"] == 400
    assert results["r0"]["response"]["body"]["error"]["param"] == "temperature"
    assert results["r1"]["response"]["status_code"] == 200


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("{", "in.jsonl:2"),
        ({"custom_id": "x"}, "url"),
        (line(1, "/v1/nothing"), "/v1/chat/completions"),
        (line(1, "/abort_requests"), "/abort_requests"),
        (line(1) | {"method": "GET"}, "GET"),
        (line(1, stream=True), "stream"),
        (line(0), "comes twice"),
        ({**line(1), "body": []}, "in.jsonl:2"),
    ],
)
def test_a_wrong_line_is_told_first(tmp_path, wrong, words):
    path = write(tmp_path, line(0), wrong)
    with pytest.raises(ConfigError, match=words):
        list(read_lines(path, _paths()))


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="input_file"):
        list(read_lines(tmp_path / "none", _paths()))
