"""Requests to /v1/completions of a running server; greedy unless they say otherwise."""

import json

import httpx
import pytest


def complete(url, **body):
    reply = httpx.post(f"{url}/v1/completions", json={"temperature": 0, **body}, timeout=120)
    assert reply.status_code == 200, reply.text
    return json.loads(reply.text, parse_constant=pytest.fail)


def chunks(url, **body):
    """The parsed events of a completion stream."""
    body = {"temperature": 0, "stream": True, **body}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=120) as reply:
        lines = [line for line in reply.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def status(url, **body):
    return httpx.post(f"{url}/v1/completions", json=body, timeout=60).status_code
