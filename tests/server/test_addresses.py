"""Addresses in requests: whatever they point to, the server connects to none of them."""

import socket

import httpx
import pytest

PLACES = (
    "http://127.0.0.1:{port}/x",
    "http://localhost.:{port}/x",
    "http://[::1]:{port}/x",
    "http://0x7f000001:{port}/x",
    "http://169.254.169.254/latest/meta-data",
    "file:///etc/passwd",
    "data:image/png;base64,AAAA",
)


@pytest.fixture
def listener():
    """A socket on this machine that somebody might be sent to."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


def bodies(url):
    def said(part):
        return [{"role": "user", "content": [part]}]

    chat = {"type": "image_url", "image_url": {"url": url}}
    audio = {"type": "audio_url", "audio_url": {"url": url}}
    for part in (chat, audio):
        yield "/v1/chat/completions", {"messages": said(part)}
        yield "/tokenize", {"messages": said(part)}
    image = {"type": "input_image", "image_url": url}
    yield "/v1/responses", {"input": said(image)}
    yield "/v1/conversations", {"items": said(image)}
    yield "/v1/responses", {"input": said({"type": "input_file", "file_url": url})}
    block = {"type": "image", "source": {"type": "url", "url": url}}
    document = {"type": "document", "source": {"type": "url", "url": url}}
    for part in (block, document):
        yield "/v1/messages", {"messages": said(part), "max_tokens": 2}
        yield "/v1/messages/count_tokens", {"messages": said(part)}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [block]}
    yield "/v1/messages", {"messages": said(result), "max_tokens": 2}


def test_none_is_fetched(server, listener):
    port = listener.getsockname()[1]
    with httpx.Client(base_url=server.url) as client:
        for place in PLACES:
            for path, body in bodies(place.format(port=port)):
                reply = client.post(path, json=body)
                assert reply.status_code == 400, (path, body, reply.text)
                assert place.format(port=port) not in reply.text
    with pytest.raises(BlockingIOError):
        listener.accept()
