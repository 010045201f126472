"""The chat page in headless Chromium: what a person does with it, on screens of both kinds."""

import json

import pytest

from support.browser import CHROMIUM, Page
from support.fake_async_llm import FakeAsyncLLM
from support.http_server import ServerThread, wait_until
from support.tiny import fake_config

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

THOUGHT = "<think>Be brief.</think>"
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'


@pytest.fixture(scope="module")
def server():
    config = fake_config(max_model_len=4096, hf_overrides={"max_position_embeddings": 4096})
    server = ServerThread(
        FakeAsyncLLM(config, sleep=0.002), tool_call_parser="hermes", reasoning_parser="deepseek_r1"
    )
    yield server
    server.stop()


@pytest.fixture(scope="module")
def browser():
    page = Page()
    yield page
    page.close()


@pytest.fixture
def page(browser, server):
    """The chat page as on the first visit, on a desktop screen."""
    browser.show(1280, 800)
    browser.open(f"{server.url}/")
    browser.js("sessionStorage.clear()")
    browser.open(f"{server.url}/")
    browser.wait("document.getElementById('model').textContent")
    browser.problems.clear()
    yield browser
    # An event stream that is stopped is no problem; an error or a violated policy is.
    assert browser.problems == []


def say(page, text):
    """Send a message by keyboard and wait for the end of its answer."""
    page.js("document.getElementById('message').focus()")
    page.type(text)
    page.press("Enter")
    page.wait("document.getElementById('send').hidden || document.querySelector('.actions')")
    page.wait("document.getElementById('stop').hidden")


def set_field(page, name, value):
    page.js(
        f"(() => {{ const f = document.getElementById('{name}'); f.value = {json.dumps(value)};"
        " f.dispatchEvent(new Event('change')); })()"
    )


def texts(page, selector):
    return page.js(f"[...document.querySelectorAll('{selector}')].map((e) => e.textContent)")


def last_body(page):
    """The request as the page gives it for a shell."""
    page.js(
        "window.copied = ''; navigator.clipboard.writeText = async (t) => { window.copied = t; }"
    )
    page.js("document.getElementById('copy-curl').click()")
    page.wait("window.copied")
    command = page.js("window.copied")
    assert command.startswith("curl -N 'http://127.0.0.1:")
    return json.loads(command.partition("-d '")[2].removesuffix("'").replace("'\\''", "'"))


def test_a_conversation(page, server):
    server.engine.script = f"{THOUGHT}It is **green**, isn't it?"
    set_field(page, "system", "Be kind.")
    say(page, "Name a colour.")
    assert texts(page, ".turn.user .text") == ["Name a colour."]
    assert texts(page, ".reasoning div") == ["Be brief."]
    assert page.js("document.querySelector('.reasoning').open") is False
    assert texts(page, ".turn.assistant .text strong") == ["green"]
    (meta,) = texts(page, ".turn .meta:not(:empty)")
    assert "first token" in meta
    assert "tokens/s" in meta
    assert "It is **green**" in texts(page, "#announcer")[0]
    say(page, "Why?")
    roles = [message["role"] for message in last_body(page)["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert server.engine.seen[-1][0]["prompt"].startswith("system:Be kind.")


def test_parameters_are_sent_as_they_are_entered(page, server):
    server.engine.script = "fine"
    for name, value in {
        "temperature": "0.5",
        "max_tokens": "7",
        "top_k": "40",
        "seed": "3",
        "stop_strings": "END\n\nSTOP",
        "thinking": "off",
        "format": "json_object",
    }.items():
        set_field(page, name, value)
    say(page, "hi")
    params = server.engine.seen[-1][1]
    assert (params.temperature, params.max_tokens, params.top_k, params.seed) == (0.5, 7, 40, 3)
    assert params.stop_strings == ["END", "STOP"]
    assert params.structured_outputs.json_object
    assert last_body(page)["chat_template_kwargs"] == {"enable_thinking": False}


def test_what_can_not_be_sent_is_told_beside_its_field(page, server):
    before = len(server.engine.seen)
    set_field(page, "format", "json_schema")
    set_field(page, "schema", "{nope")
    assert "Not valid JSON" in texts(page, "#schema-error")[0]
    assert page.js("document.getElementById('schema').getAttribute('aria-invalid')") == "true"
    page.js("document.getElementById('message').focus()")
    page.type("hi")
    page.press("Enter")
    page.wait("document.activeElement.id === 'schema'")
    assert len(server.engine.seen) == before
    assert page.js("document.getElementById('message').value") == "hi"
    set_field(page, "schema", '{"type": "string"}')
    set_field(page, "temperature", "9")
    page.js("document.getElementById('composer').requestSubmit()")
    page.wait("document.activeElement.id === 'temperature'")


def test_an_error_of_the_server_is_shown_and_the_question_comes_back(page):
    set_field(page, "format", "json_schema")
    set_field(page, "schema", '{"type": "string", "pattern": "("}')
    say(page, "hi")
    page.wait("document.querySelector('.failed')")
    assert "unclosed group" in texts(page, ".failed .text")[0]
    assert page.js("document.getElementById('message').value") == "hi"
    page.problems.clear()  # the browser's note of the status 400


def test_a_tool_is_called_and_gets_its_result(page, server):
    server.engine.script = f"I will look.{CALL}"
    page.js("document.getElementById('example-tool').click()")
    say(page, "Weather?")
    assert texts(page, ".call-name") == ["get_weather"]
    assert json.loads(texts(page, ".call code")[0]) == {"city": "Rome"}
    assert page.js("document.activeElement.labels[0].textContent") == "Result of get_weather"
    page.type("sunny")
    server.engine.script = "It is sunny."
    page.js("document.querySelector('.results button').click()")
    page.wait("document.querySelectorAll('.actions').length === 2")
    assert server.engine.seen[-1][0]["prompt"].endswith("tool:sunny\nassistant:")
    assert texts(page, ".turn.assistant .text")[-1] == "It is sunny."
    assert not page.js("document.querySelector('.results')")


def test_calls_without_results_do_not_hold_the_conversation_up(page, server):
    server.engine.script = CALL
    page.js("document.getElementById('example-tool').click()")
    say(page, "Weather?")
    server.engine.script = "As you like."
    say(page, "Never mind.")
    page.wait("document.querySelectorAll('.actions').length === 2")
    roles = [message["role"] for message in last_body(page)["messages"]]
    assert roles == ["user", "assistant", "tool", "user"]


def test_tokens_are_looked_at_by_keyboard(page, server):
    server.engine.script = "one two"
    page.js("document.getElementById('logprobs').click()")
    set_field(page, "top_logprobs", "3")
    say(page, "count")
    tokens = texts(page, ".token")
    assert "".join(tokens) == "one two"
    assert texts(page, ".token.p2") == tokens  # e^-1 of the fake engine
    page.js("document.querySelector('.token').focus()")
    page.press("ArrowRight")
    assert page.js("document.activeElement.dataset.at") == "1"
    page.press("End")
    assert page.js("document.activeElement.textContent") == tokens[-1]
    shown = texts(page, ".alternatives li")
    assert len(shown) == 3
    assert shown[0] == f'"{tokens[-1]}"36.8%chosen'
    # One stop for the Tab key, wherever the arrows have led to.
    assert page.js("document.querySelectorAll('.token[tabindex=\"0\"]').length") == 1
    page.js("document.querySelector('.actions button').click()")
    assert page.js("document.querySelector('.tokens').hidden")
    assert texts(page, ".turn.assistant .text") == ["one two"]


@pytest.mark.parametrize("how", ["Escape", "button"])
def test_an_answer_is_stopped(page, server, how):
    server.engine.script = None  # an answer without end
    page.js("document.getElementById('message').focus()")
    page.type("talk")
    page.press("Enter")
    page.wait("document.querySelector('.turn.assistant .text').textContent.length > 40")
    if how == "Escape":
        page.press("Escape")
    else:
        page.click("#stop")
    page.wait("document.getElementById('stop').hidden")
    assert "stopped" in texts(page, ".meta")[-1]
    wait_until(lambda: server.engine.num_running == 0, "the request has ended")
    page.problems.clear()


def test_an_answer_is_tried_again(page, server):
    server.engine.script = "first"
    say(page, "hi")
    server.engine.script = "second"
    page.js("[...document.querySelectorAll('.actions button')].at(-1).click()")
    page.wait("document.querySelector('.turn.assistant .text').textContent === 'second'")
    page.wait("document.querySelector('.actions')")
    assert len(last_body(page)["messages"]) == 1


def test_a_conversation_is_exported(page, server):
    server.engine.script = "the answer"
    say(page, "hi")
    page.js(
        "URL.createObjectURL = (blob) => { blob.text().then((t) => { window.file = t; });"
        " return '#'; }"
    )
    page.js("document.getElementById('export').click()")
    page.wait("window.file")
    saved = json.loads(page.js("window.file"))
    assert [message["content"] for message in saved["messages"]] == ["hi", "the answer"]


@pytest.mark.parametrize("phone", [False, True])
def test_everything_has_a_name_and_nothing_overflows(page, server, phone):
    server.engine.script = f"{THOUGHT}word " * 80
    page.show(*((390, 844) if phone else (1280, 800)), phone=phone)
    say(page, "hi")
    page.js("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    page.js("document.getElementById('settings').hidden = false")
    roles = ("button", "textbox", "combobox", "spinbutton", "checkbox", "link")
    nameless = [role for role, name in page.accessible() if role in roles and not name]
    assert nameless == []
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    assert page.js("document.documentElement.scrollHeight <= innerHeight")


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_what_is_behind_it(page, server, dark):
    """Contrast of at least 4.5 (https://www.w3.org/TR/WCAG22/#contrast-minimum)."""
    page.show(1280, 800, dark=dark)
    page.js("document.getElementById('logprobs').click()")
    server.engine.script = "one two"
    say(page, "hi")
    pairs = page.js(
        """(() => {
          const style = document.documentElement.appendChild(document.createElement('i'));
          const rgb = (name) => {
            style.style.color = `var(--${name})`;
            return getComputedStyle(style).color.match(/[\\d.]+/g).slice(0, 3).map(Number);
          };
          const front = ['front', 'quiet', 'bad', 'accent'].map((name) => [name, 'back']);
          const marks = ['very', 'well', 'so-so', 'hardly', 'barely', 'mine', 'code', 'field'];
          const all = [...front, ['on-accent', 'accent'], ['quiet', 'field'],
                       ...marks.map((name) => ['front', name])];
          return all.map(([a, b]) => [a, b, rgb(a), rgb(b)]);
        })()"""
    )

    def light(color):
        parts = [c / 255 for c in color]
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    for front, back, one, other in pairs:
        high, low = sorted((light(one), light(other)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (front, back, one, other)


def test_the_theme_can_be_chosen(page):
    page.show(1280, 800, dark=False)
    light = page.js("getComputedStyle(document.body).backgroundColor")
    set_field(page, "theme", "dark")
    assert page.js("getComputedStyle(document.body).backgroundColor") != light


def test_a_server_with_keys_asks_for_one(browser):
    server = ServerThread(api_key=("secret",))
    try:
        browser.show(1280, 800)
        browser.open(f"{server.url}/")
        browser.wait("document.activeElement.id === 'api_key'")
        assert "API key" in texts(browser, "#status")[0]
        set_field(browser, "api_key", "secret")
        browser.wait("document.getElementById('model').textContent")
    finally:
        browser.problems.clear()
        server.stop()
