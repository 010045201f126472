"""LiteLLM against the server: an answer, a stream, and a router over several servers.

pip install litellm
python examples/litellm_chat.py [http://localhost:8000]
"""

from __future__ import annotations

import json
import sys
import urllib.request

import litellm

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def main(url: str) -> None:
    with urllib.request.urlopen(f"{url}/v1/models") as reply:
        model = json.load(reply)["data"][0]["id"]
    # "hosted_vllm" is LiteLLM's name for servers like this one.
    server = {"model": f"hosted_vllm/{model}", "api_base": f"{url}/v1", "api_key": "none"}

    answer = litellm.completion(**server, messages=QUESTION, temperature=0, max_tokens=16)
    print("answer:", answer.choices[0].message.content)

    stream = litellm.completion(
        **server, messages=QUESTION, temperature=0, max_tokens=16, stream=True
    )
    print("stream:", "".join(chunk.choices[0].delta.content or "" for chunk in stream))

    # When a server is away, the router asks the next one.
    away = server | {"api_base": "http://127.0.0.1:9/v1"}
    router = litellm.Router(
        model_list=[
            {"model_name": name, "litellm_params": one}
            for name, one in (("first", away), ("second", server))
        ],
        fallbacks=[{"first": ["second"]}],
        num_retries=0,
    )
    answer = router.completion("first", messages=QUESTION, temperature=0, max_tokens=16)
    print("router:", answer.choices[0].message.content)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000")
