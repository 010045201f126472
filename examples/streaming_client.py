"""Stream several answers side by side with OpenAI's client, and stop one early.

python examples/streaming_client.py [http://localhost:8000]
"""

from __future__ import annotations

import asyncio
import sys
import time

from openai import AsyncOpenAI

QUESTIONS = {
    "sky": "Why is the sky blue?",
    "bees": "What do bees make?",
    "story": "Tell me a very long story.",
}
PATIENCE = 2.0  # seconds that a story may take


async def follow(client: AsyncOpenAI, model: str, name: str, question: str) -> None:
    begin = time.monotonic()
    stream = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        temperature=0,
        max_tokens=64 if name != "story" else 2000,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, first, usage = "", None, None
    # Leaving the block closes the connection; the server stops generating at once.
    async with stream:
        async for chunk in stream:
            usage = chunk.usage or usage
            piece = chunk.choices[0].delta.content if chunk.choices else None
            if piece:
                first = first or time.monotonic() - begin
                text += piece
            if name == "story" and time.monotonic() - begin > PATIENCE:
                break
    took = time.monotonic() - begin
    end = f"{usage.completion_tokens} tokens" if usage else "stopped early"
    print(f"{name}: first text after {first:.2f} s, {end} in {took:.2f} s\n  {text!r}")


async def main(url: str) -> None:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        model = (await client.models.list()).data[0].id
        await asyncio.gather(*(follow(client, model, *item) for item in QUESTIONS.items()))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"))
