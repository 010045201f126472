"""Conversations become the tokens that Mistral's own code makes of them."""

import importlib.util
import json

import pytest

from octavo.checkpoints.locate import find_model
from octavo.entrypoints.chat_template import ChatTemplate
from octavo.tokenizers.tokenizer import load_tokenizer
from octavo.types.errors import RequestError
from support.tiny_tekken import write_tekken

SPECIALS = [
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]"),
    *("[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    *("[TOOL_CONTENT]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"),
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "What it \u00e9 does",
            "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
        },
    }
    for name in ("weather", "time")
]


def call(name, call_id, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": call_id, "type": "function", "function": function}


def assistant(content=None, *calls):
    message = {"role": "assistant", "content": content}
    return message | ({"tool_calls": list(calls)} if calls else {})


def user(content):
    return {"role": "user", "content": content}


def tool(content, call_id):
    return {"role": "tool", "content": content, "tool_call_id": call_id, "name": "weather"}


SYSTEM = {"role": "system", "content": "Be brief."}
TALK = [user("the dog?"), assistant("the fox. "), user("then?")]
CALLS = [
    user("the dog?"),
    assistant("", call("weather", "abcdefgh1", a="na\u00efve"), call("time", "abcdefgh2")),
    tool('{"t": 1}', "abcdefgh1"),
    tool("sleeps", "abcdefgh2"),
    assistant("it sleeps"),
    user("thing"),
    assistant("", call("time", "abcdefgh3", a="1", b=2)),
    tool("12", "abcdefgh3"),
]
CONVERSATIONS = {
    "one": [user("the dog?")],
    "system": [SYSTEM, *TALK],
    "tools": CALLS,
    "tools and system": [SYSTEM, *CALLS],
    "users": [user("the dog"), user("sleeps"), assistant("a"), user("b"), user("c")],
    "parts of a system": [SYSTEM | {"content": [{"type": "text", "text": t} for t in "ab"]}, *TALK],
    "parts": [user([{"type": "text", "text": "the"}, {"type": "text", "text": " dog"}])],
}
ONLY_LATER = {
    "text and calls": [user("a"), assistant("thought", call("time", "abcdefgh1")),
                       tool("x", "abcdefgh1")],
}  # fmt: skip
THINKING = [
    user("a"),
    assistant([{"type": "thinking", "thinking": "then"},
               {"type": "text", "text": "it"}]),
    user("b"),
]  # fmt: skip


@pytest.fixture(scope="module", params=["v3", "v7", "v11", "v13"])
def pair(request, tmp_path_factory):
    """(version, our template and tokenizer, Mistral's tokenizer)."""
    if importlib.util.find_spec("mistral_common") is None:
        pytest.skip("mistral-common is not installed")
    mistral = pytest.importorskip("mistral_common.tokens.tokenizers.mistral")
    folder = tmp_path_factory.mktemp(request.param)
    path = folder / "tekken.json"
    write_tekken(path, request.param, num_special=len(SPECIALS) + 2)
    content = json.loads(path.read_text())
    content["special_tokens"] = [
        {"rank": rank, "token_str": name, "is_control": True} for rank, name in enumerate(SPECIALS)
    ]
    content["config"]["num_vocab_tokens"] = len(content["vocab"])
    path.write_text(json.dumps(content))
    (folder / "params.json").write_text("{}")
    files = find_model(str(folder))
    tokenizer = load_tokenizer(files)
    template = ChatTemplate(files.chat_template(), tokenizer)
    theirs = mistral.MistralTokenizer.from_file(str(path))
    return request.param, template, tokenizer, theirs


def check(pair, messages, tools):
    version, template, tokenizer, theirs = pair
    text = template.render(messages, tools=tools)
    request = pytest.importorskip("mistral_common.protocol.instruct.request")
    made = request.ChatCompletionRequest.from_openai(messages=messages, tools=tools)
    expected = theirs.encode_chat_completion(made).tokens
    assert tokenizer.encode(text, add_special_tokens=False) == expected, (version, text)


@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_conversations(pair, name, tools):
    check(pair, CONVERSATIONS[name], tools)


@pytest.mark.parametrize("name", ONLY_LATER)
def test_conversations_since_version_7(pair, name):
    if pair[0] == "v3":
        pytest.skip("version 3 has no form for it")
    check(pair, ONLY_LATER[name], TOOLS)


def test_thinking(pair):
    if pair[0] != "v13":
        with pytest.raises(RequestError, match="part of type thinking"):
            pair[1].render(THINKING)
        return
    check(pair, THINKING, None)


def test_what_has_no_form(pair):
    with pytest.raises(RequestError, match="the role critic is not one of"):
        pair[1].render([user("a"), {"role": "critic", "content": "b"}])
    with pytest.raises(RequestError, match="a user message has a part of type image_url"):
        pair[1].render([user([{"type": "image_url", "image_url": {"url": "x"}}])])
