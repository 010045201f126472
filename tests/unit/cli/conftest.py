"""A server for the commands that talk to one."""

import pytest

from support.openai_stub import OpenAIStub


@pytest.fixture
def stub():
    server = OpenAIStub()
    yield server
    server.stop()
