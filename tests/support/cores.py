"""Requests for a core behind a client, without tokenizer and output processor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from octavo.engine.core_client import MPClient
from octavo.types.request import EngineCoreRequest
from octavo.types.sampling_params import SamplingParams
from support.tiny import fake_config

PROMPT = [5, 6, 7]


def request(
    name: str, prompt: list[int] = PROMPT, max_tokens: int = 8, **script: Any
) -> EngineCoreRequest:
    """A greedy request; `script` is for the fake executor."""
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, extra_args=script or None)
    return EngineCoreRequest(name, prompt, len(prompt), params, 0, 0.0, max_tokens)


def tokens_of(client: MPClient, name: str) -> list[int]:
    """Wait for the end of a request."""
    tokens: list[int] = []
    while True:
        for output in client.get_output().outputs:
            if output.request_id == name:
                tokens += output.new_token_ids
                if output.finish_reason is not None:
                    return tokens


def take_outputs(client: MPClient) -> None:
    """Take outputs until an error."""
    while True:
        client.get_output()


def take_messages(client: MPClient, check: Callable[[], object]) -> None:
    """Take messages, with a check after each, until an error."""
    while True:
        message = client._core.receive(timeout=None)
        assert message is not None
        client._accept(*message)
        check()


@contextmanager
def running_client(**kwargs: Any) -> Iterator[MPClient]:
    """A client of a core of its own."""
    client = MPClient(fake_config(**kwargs))
    try:
        yield client
    finally:
        client.shutdown()
