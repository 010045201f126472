"""Chat templates render as transformers renders them, and stay within bounds."""

import datetime

import pytest
from transformers import PreTrainedTokenizerFast

from octavo.checkpoints.locate import find_model
from octavo.entrypoints.chat_template import RESERVED_NAMES, ChatTemplate
from octavo.tokenizers.template_sandbox import TemplateLimits
from octavo.tokenizers.tokenizer import load_tokenizer
from octavo.types.errors import RequestError
from support.tiny_tokenizer import byte_level, byte_level_backend

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": 'of a <place> & "day", é',
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    },
}
PLAIN = [{"role": "user", "content": " hi <b> "}]
TURNS = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\ntwo"},
    {"role": "user", "content": "three"},
]
CALLS = [
    {"role": "user", "content": "weather?"},
    {
        "role": "assistant",
        "content": None,
        "reasoning": "ask",
        "tool_calls": [
            {"type": "function", "function": {"name": "weather", "arguments": {"place": "Köln"}}}
        ],
    },
    {"role": "tool", "content": "rain"},
    {"role": "assistant", "content": "It rains."},
]
PARTS = [
    {
        "role": "user",
        "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}],
    }
]

TEMPLATES = {
    "smollm2": find_model("smollm2-135m-instruct").chat_template(),
    "begin": "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m.content | trim }}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}",
    "tools": """
        {%- if tools %}{% for tool in tools %}{{ tool | tojson }}{{ tool | tojson(indent=2) }}
        {%- endfor %}{% endif %}
        {%- set ns = namespace(last=-1) %}
        {%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}
        {%- endfor %}
        {%- for m in messages %}
            {%- if loop.index0 < ns.last %}{% continue %}{% endif %}
            {{- '<' ~ m.role ~ '>' }}{% if m.content is defined %}{{ m.content }}{% endif %}
            {%- if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}
            {%- for call in m.tool_calls %}
                {{- call.function.name + '(' + call.function.arguments | tojson + ')' }}
            {%- endfor %}
            {%- if loop.last %}!{% else %},{% endif %}
        {%- endfor %}{% if enable_thinking is defined and not enable_thinking %}/no{% endif %}
    """,
    "generation": "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}"
    "{% else %}{{ m.content }}|{% endif %}{% endfor %}",
    "macro": "{% macro line(m) %}{{ m.role.upper() }}: {{ caller() }}\n{% endmacro %}"
    "{% for m in messages[::-1] %}{% call line(m) %}{{ m.content | default('-') }}{% endcall %}"
    "{% endfor %}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
    "{{ range(3) | join('-') }}{{ 'x' * 3 }}{{ '%s!' % 'y' }}{{ 2 ** 8 }}{{ dict(a=1).a }}",
    "parts": "{% for m in messages %}{{ m.role }}:"
    "{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %};{% endfor %}",
}


def make(source, **limits):
    return ChatTemplate(source, byte_level(), TemplateLimits(**limits) if limits else None)


@pytest.fixture(scope="module")
def reference():
    return PreTrainedTokenizerFast(
        tokenizer_object=byte_level_backend(), bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("messages", [PLAIN, TURNS, CALLS], ids=["plain", "turns", "calls"])
@pytest.mark.parametrize("tools", [None, [TOOL]], ids=["", "tools"])
@pytest.mark.parametrize("begin", [True, False])
def test_equals_transformers(reference, name, messages, tools, begin):
    if messages is CALLS and name in ("smollm2", "begin", "generation"):
        messages = [message | {"content": message["content"] or ""} for message in messages]
    arguments = {"tools": tools, "add_generation_prompt": begin, "enable_thinking": False}
    expected = reference.apply_chat_template(
        messages, chat_template=TEMPLATES[name], tokenize=False, **arguments
    )
    assert make(TEMPLATES[name]).render(messages, **arguments) == expected


@pytest.mark.parametrize("name", ["smollm2", "begin", "tools", "parts"])
@pytest.mark.parametrize("text", ["It is", "It is ", " It is\n"])
@pytest.mark.parametrize("field", [True, "content"])
def test_continue_equals_transformers(reference, name, text, field):
    messages = [*TURNS, {"role": "assistant", "content": text}]
    expected = reference.apply_chat_template(
        messages, chat_template=TEMPLATES[name], tokenize=False, continue_final_message=field
    )
    rendered = make(TEMPLATES[name]).render(
        messages, add_generation_prompt=False, continue_final_message=field
    )
    assert rendered == expected
    assert rendered.rstrip().endswith(text.strip())


def test_continue_reasoning_and_parts(reference):
    messages = [*TURNS, {"role": "assistant", "reasoning": "because"}]
    for field in ("reasoning", "reasoning_content"):
        rendered = make(TEMPLATES["tools"]).render(
            messages, add_generation_prompt=False, continue_final_message=field
        )
        assert rendered.endswith("<assistant>(because")
    rendered = make(TEMPLATES["parts"]).render(
        PARTS, add_generation_prompt=False, continue_final_message=True
    )
    assert rendered == "user:AB"


@pytest.mark.parametrize(
    ("messages", "arguments", "message"),
    [
        (PLAIN, {"add_generation_prompt": True}, "exclude each other"),
        ([{"role": "user"}], {}, "no text in 'content' to continue"),
        ([{"role": "user", "content": 3}], {}, "no text in 'content'"),
        (PLAIN, {"continue_final_message": "thoughts"}, "no text in 'thoughts'"),
    ],
)
def test_continue_refusals(messages, arguments, message):
    arguments = {"add_generation_prompt": False, "continue_final_message": True} | arguments
    with pytest.raises(RequestError, match=message):
        make(TEMPLATES["tools"]).render(messages, **arguments)


def test_message_that_the_template_changes_cannot_be_continued():
    template = make("{% for m in messages %}{{ m.content[:4] }}{% endfor %}")
    with pytest.raises(RequestError, match="does not write the last message as it is"):
        template.render(
            [{"role": "user", "content": "a long one"}],
            add_generation_prompt=False,
            continue_final_message=True,
        )


def test_exactly_one_begin_token(reference):
    tokenizer = byte_level()
    text = make(TEMPLATES["begin"]).render(TURNS)
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert ids.count(tokenizer.bos_token_id) == 1
    assert ids == reference.apply_chat_template(
        TURNS, chat_template=TEMPLATES["begin"], add_generation_prompt=True, return_dict=False
    )


def test_smollm2_prompt():
    tokenizer = load_tokenizer(find_model("smollm2-135m-instruct"))
    template = ChatTemplate(tokenizer.chat_templates, tokenizer)
    assert template.render([{"role": "user", "content": "Hi"}]) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_parts_are_joined_for_templates_that_want_text():
    as_text = [{"role": "user", "content": "A\nB"}]
    for name in ("smollm2", "begin"):
        template = make(TEMPLATES[name])
        assert not template.handles_parts
        assert template.render(PARTS) == template.render(as_text)


def test_parts_go_to_templates_that_take_them(reference):
    template = make(TEMPLATES["parts"])
    assert template.handles_parts
    assert template.render(PARTS) == "user:AB;"
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]
    with pytest.raises(RequestError, match="part of type 'image_url'; this model takes text"):
        make(TEMPLATES["begin"]).render(image)


def test_tool_template_serves_requests_with_tools():
    template = make({"default": "plain", "tool_use": "{{ tools[0].function.name }}"})
    assert template.render(PLAIN) == "plain"
    assert template.render(PLAIN, tools=[TOOL]) == "weather"
    with pytest.raises(RequestError, match="named other and no default"):
        make({"other": "x"}).render(PLAIN)


def test_template_s_own_refusal_is_the_client_s_error():
    template = make("{{ raise_exception('System role must come first: <' ~ messages[0].role) }}")
    with pytest.raises(RequestError) as raised:
        template.render(PLAIN)
    assert str(raised.value) == "System role must come first: <user"
    assert raised.value.param == "messages"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ messages[0].absent.more }}", "'dict object' has no attribute 'absent'"),
        ("{{ 'a' + 1 }}", "can only concatenate"),
        ("{% include 'other' %}", "no loader"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe|not callable"),
        ("{{ raise_exception.__globals__.os }}", "unsafe"),
        ("{{ namespace(__init__=1) }}", "can't have the attribute"),
        ("{% set n = namespace() %}{% set n.__init__ = 1 %}", "can't have the attribute"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_failures_of_the_template(source, message):
    with pytest.raises(RequestError, match=message):
        make(source).render(PLAIN)


@pytest.mark.parametrize(
    "source", ["{% if %}", "{{ x", "{% for %}", "{% unknown %}", "{{ 'a' | no }}"]
)
def test_invalid_templates(source):
    with pytest.raises(RequestError, match="not valid Jinja, line 1") as raised:
        make(source)
    assert raised.value.param == "chat_template"


def test_huge_template():
    with pytest.raises(RequestError, match="at most 1048576"):
        make("x" * (1 << 20) + "x")


def test_what_one_rendering_uses_is_bounded():
    with pytest.raises(RequestError, match="it builds a text or list of 1000000000"):
        make("{{ 'x' * 1000000000 }}").render(PLAIN)
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(RequestError, match=r"it ran longer than 0\.05 s"):
        make(loops, max_cpu_seconds=0.05).render(PLAIN)


ARGUMENTS = {"tools", "documents", "add_generation_prompt", "continue_final_message"}


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES - ARGUMENTS))
def test_variables_cannot_take_the_place_of_arguments(name):
    with pytest.raises(RequestError, match=f"can't set '{name}'") as raised:
        make("x").render(PLAIN, **{name: "{{ 'x' * 9 }}"})
    assert raised.value.param == "chat_template_kwargs"


class Loaded:
    """An object whose attributes a template must not reach."""

    secret = "s"


def test_only_plain_data_reaches_the_template():
    class Message:
        def model_dump(self):
            return {"role": "user", "content": "dumped"}

    assert "dumped" in make(TEMPLATES["begin"]).render([Message()])
    for messages in ([{"role": "user", "content": Loaded()}], [Loaded()], ["text"]):
        with pytest.raises(RequestError, match="messages holds a"):
            make("{{ messages[0].content.secret }}").render(messages)
    with pytest.raises(RequestError, match="messages is empty"):
        make("x").render([])


def test_an_answer_without_content_suits_every_template():
    """Templates that know no tool calls add the content to a text."""
    answer = {"role": "assistant", "content": None, "tool_calls": CALLS[1]["tool_calls"]}
    source = "{% for m in messages %}{{ m.role + ':' + m.content + ';' }}{% endfor %}"
    assert make(source).render([*PLAIN, answer]) == "user: hi <b> ;assistant:;"
    source = "{% for m in messages %}{{ m.content is defined }};{% endfor %}"
    assert make(source).render([*PLAIN, answer]) == "True;False;"


def test_messages_are_not_changed():
    messages = [{"role": "user", "content": [{"type": "text", "text": "A"}], "name": None}]
    make(TEMPLATES["parts"]).render(
        messages, add_generation_prompt=False, continue_final_message=True
    )
    assert messages == [{"role": "user", "content": [{"type": "text", "text": "A"}], "name": None}]


def test_strftime_now_and_variables():
    text = make("{{ strftime_now('%Y') }} {{ documents[0].text }} {{ bos_token }}").render(
        PLAIN, documents=[{"text": "doc"}], bos_token="[B]"
    )
    assert text == f"{datetime.datetime.now():%Y} doc [B]"
