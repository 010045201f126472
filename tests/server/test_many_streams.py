"""Many streams at once through one process: none loses, repeats or reorders anything."""

import asyncio
import json

from support.fake_async_llm import SCRIPT

TOKENS = 40
STREAMS = 1000


async def read(url, number):
    """The text of one stream; its length depends on its number."""
    host, port = url.removeprefix("http://").split(":")
    body = {"prompt": f"{number}", "max_tokens": TOKENS + number % 7, "stream": True}
    data = json.dumps(body | {"vllm_xargs": {"sleep": 0.005}}).encode()
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    lines = []
    while (line := await reader.readline()) != b"data: [DONE]\n":
        assert line, "the connection ended before the stream"
        if line.startswith(b"data: {"):
            lines.append(json.loads(line[6:]))
    writer.close()
    return "".join(line["choices"][0]["text"] for line in lines)


async def test_a_thousand_streams(server):
    texts = await asyncio.gather(*(read(server.url, number) for number in range(STREAMS)))
    whole = (SCRIPT * 3).encode()
    expected = [whole[: TOKENS + number % 7].decode(errors="ignore") for number in range(STREAMS)]
    assert texts == expected
