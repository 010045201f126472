"""/tokenize and /detokenize over a fake engine."""

import pytest


async def test_text(client):
    body = (await client.post("/tokenize", json={"prompt": "ab"})).json()
    assert body == {
        "count": 2,
        "max_model_len": client.engine.config.model.max_model_len,
        "tokens": client.engine.tokenizer.encode("ab"),
        "token_strs": None,
    }


async def test_token_strings(client):
    reply = await client.post("/tokenize", json={"prompt": "a ", "return_token_strs": True})
    assert reply.json()["token_strs"] == ["a", "Ġ"]


async def test_a_conversation_has_the_tokens_that_chat_would_run(client):
    messages = [{"role": "user", "content": "hi"}]
    body = (await client.post("/tokenize", json={"messages": messages})).json()
    await client.chat(messages, max_tokens=1)
    assert body["tokens"] == client.engine.seen[0][0]["prompt_token_ids"]
    fields = {"messages": messages, "add_generation_prompt": False}
    shorter = (await client.post("/tokenize", json=fields)).json()
    assert shorter["count"] == body["count"] - len("assistant:")


async def test_what_clients_need_to_write_prompts(client):
    body = (await client.get("/tokenizer_info")).json()
    assert body["eos_token"] == "</s>"
    assert body["bos_token"] is None
    assert body["add_bos_token"] is False
    assert body["chat_template"] == client.engine.tokenizer.chat_template
    assert body["model_max_length"] == client.engine.config.model.max_model_len


async def test_back_and_forth(client):
    text = "a é 東</s>"
    tokens = (await client.post("/tokenize", json={"prompt": text})).json()["tokens"]
    assert (await client.post("/detokenize", json={"tokens": tokens})).json() == {"prompt": text}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {}),
        ("/tokenize", {"prompt": 5}),
        ("/tokenize", {"messages": []}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": [10_000_000]}),
        ("/detokenize", {"tokens": [1 << 70]}),
        ("/detokenize", {"tokens": ["a"]}),
        ("/detokenize", {"tokens": "a"}),
    ],
)
async def test_bad_bodies(client, path, body):
    assert (await client.post(path, json=body)).status_code == 400


async def test_a_text_that_is_too_long_is_not_tokenized(client, monkeypatch):
    monkeypatch.setattr(client.engine.tokenizer, "encode", lambda *args: pytest.fail("encoded"))
    reply = await client.post("/tokenize", json={"prompt": "a" * 1_000_000})
    assert reply.status_code == 400
    assert "characters" in reply.json()["error"]["message"]


async def test_the_model_is_checked(client):
    assert (await client.post("/tokenize", json={"prompt": "a", "model": "x"})).status_code == 404
