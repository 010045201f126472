"""Items of /v1/responses as messages, and what is refused on the way."""

import pytest

from octavo.entrypoints.openai.responses_chat import chat_fields, messages_of
from octavo.entrypoints.openai.schema.responses import ResponsesRequest
from octavo.types.errors import RequestError

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


def test_one_turn_of_the_assistant_is_one_message():
    messages = messages_of(
        [
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"role": "assistant", "content": "I will look."},
            CALL,
            CALL | {"call_id": "d"},
            {"type": "function_call_output", "call_id": "c", "output": "1"},
            {"type": "function_call_output", "call_id": "d", "output": [
                {"type": "input_text", "text": "2"}]},
        ]
    )  # fmt: skip
    first, *results = messages
    assert first["reasoning"] == "hm"
    assert first["content"] == "I will look."
    assert [call["id"] for call in first["tool_calls"]] == ["c", "d"]
    assert [(m["role"], m["tool_call_id"], m["content"]) for m in results] == [
        ("tool", "c", "1"),
        ("tool", "d", "2"),
    ]


def test_a_call_alone_has_no_content():
    (message,) = messages_of([CALL])
    assert message["content"] is None


def test_formats_tools_and_instructions():
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    tool = {"type": "function", "name": "f", "parameters": {}, "strict": True}
    body = ResponsesRequest(
        input="a",
        instructions="s",
        text={"format": schema},
        tools=[tool],
        tool_choice={"type": "function", "name": "f"},
        reasoning={"effort": "low"},
    )
    fields = chat_fields(body, [{"role": "user", "content": "a"}])
    assert fields["messages"][0] == {"role": "system", "content": "s"}
    assert fields["response_format"]["json_schema"] == {
        "name": "n",
        "schema": {"type": "object"},
        "strict": True,
    }
    assert fields["tools"][0]["function"] == {"name": "f", "parameters": {}, "strict": True}
    assert fields["tool_choice"]["function"] == {"name": "f"}
    assert fields["reasoning_effort"] == "low"


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"role": "narrator", "content": "a"}, "input[0].role"),
        ({"role": "user", "content": 5}, "input[0].content"),
        ({"role": "user", "content": [{"type": "input_image"}]}, "input[0].content[0]"),
        ({"role": "user", "content": ["a"]}, "input[0].content[0]"),
        ({"role": ["user"], "content": "a"}, "input[0].role"),
        ({"type": "item_reference", "id": "x"}, "input[0]"),
        ({"type": ["message"]}, "input[0]"),
        ({"type": "function_call", "call_id": 1}, "input[0].call_id"),
    ],
)
def test_wrong_items_are_named(item, param):
    with pytest.raises(RequestError) as caught:
        messages_of([item])
    assert caught.value.param == param
