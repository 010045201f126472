"""Which parsers a model gets, told by its real template; names and plug-ins."""

import logging

import pytest

from octavo.entrypoints.tool_parsers.answer_parsers import (
    Reading,
    check_parser_names,
    choose_parsers,
)
from octavo.entrypoints.tool_parsers.choose import infer_tool_parser
from octavo.entrypoints.tool_parsers.events import ParsedAnswer
from octavo.entrypoints.tool_parsers.interface import TOOL_PARSERS
from octavo.types.errors import ConfigError
from support.real_templates import extracts, real_tokenizer


def chosen(name, architecture="X", **options):
    template = extracts()[name]["chat_template"] or ""
    return choose_parsers(real_tokenizer(name), template, architecture, **options)


@pytest.mark.parametrize(
    ("name", "architecture", "tools", "reasoning"),
    [
        ("qwen3", "Qwen3ForCausalLM", "hermes", "qwen3"),
        ("deepseek_v3", "DeepseekV3ForCausalLM", "deepseek_v3", None),
        ("gptoss", "GptOssForCausalLM", "openai", "openai_gptoss"),
        ("llama3_1", "LlamaForCausalLM", None, None),
        ("gemma3", "Gemma3ForCausalLM", None, None),
    ],
)
def test_real_templates(name, architecture, tools, reasoning):
    parsers = chosen(name, architecture)
    assert (parsers.tool_parser_name, parsers.reasoning_parser_name) == (tools, reasoning)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("<tool_call><function=x><parameter=y>", "qwen3_coder"),
        ("{{'<tool_call>' + tc.name}}<arg_key>", "glm45"),
        ("[AVAILABLE_TOOLS][TOOL_CALLS]", "mistral"),
        ("'<minimax:tool_call>'", "minimax_m2"),
        ("<seed:tool_call>", "seed_oss"),
        ("<|tool_call>call:", "gemma4"),
        ("plain", None),
    ],
)
def test_signs_of_families(text, name):
    assert infer_tool_parser(text, "X") == name


def test_a_name_wins_and_none_does_without():
    parsers = chosen("qwen3", tool_parser="mistral", reasoning_parser="none")
    assert parsers.tool_parser_name == "mistral"
    assert parsers.reasoning is None
    assert not chosen("qwen3", tool_parser="none", reasoning_parser="none").reads(calls=True)


def test_the_choice_is_logged(caplog):
    with caplog.at_level(logging.INFO, logger="octavo"):
        logging.getLogger("octavo").propagate = True
        chosen("qwen3", tool_parser="hermes")
    assert "tool_call_parser: hermes (as asked)" in caplog.text
    assert "reasoning_parser: qwen3 (told by the model)" in caplog.text


@pytest.mark.parametrize("option", ["tool_parser", "reasoning_parser"])
def test_an_unknown_name_is_refused_with_those_there_are(option):
    with pytest.raises(ConfigError, match=r"is unknown; there are: .*none"):
        chosen("qwen3", **{option: "nonsense"})


def test_without_a_tokenizer_there_is_nothing_to_parse():
    assert not choose_parsers(None, "<tool_call>", "X").reads(calls=True)


PLUGIN = """
from octavo.entrypoints.reasoning.interface import REASONING_PARSERS, ReasoningSyntax
from octavo.entrypoints.tool_parsers.interface import TOOL_PARSERS, ToolParser

class Mine(ToolParser):
    def __init__(self, marks):
        self.opens = (marks("@@"),)

    def read_call(self, source, writer, opened, tools):
        first = yield from source.space()
        if first == "!":
            source.at += 1
            writer.start_call("mine")
            writer.arguments("{}")
            writer.end_call()
            source.claim()
        elif first == "?":
            raise RuntimeError("a fault of the plug-in")

TOOL_PARSERS.register("NAME", Mine)
REASONING_PARSERS.register("NAME", ReasoningSyntax(("((",), ("))",)))
"""


def parse(parsers, text):
    parser = parsers.open(Reading("", [], calls=True))
    return ParsedAnswer.of(parser.feed(text) + parser.finish())


def test_a_plug_in_file_brings_parsers(tmp_path):
    file = tmp_path / "plugin.py"
    name = f"mine_{tmp_path.name}"
    file.write_text(PLUGIN.replace("NAME", name))
    for _ in range(2):  # every API process loads it, and the check before the start
        parsers = chosen("qwen3", tool_parser=name, reasoning_parser=name, plugins=(str(file),))
    answer = parse(parsers, "((hm))a@@!b@@c")
    assert answer.reasoning == "hm"
    assert answer.content == "ab@@c"
    assert [call.name for call in answer.calls] == ["mine"]
    assert name in TOOL_PARSERS


def test_a_fault_of_a_plug_in_costs_no_text(tmp_path):
    file = tmp_path / "plugin.py"
    name = f"mine_{tmp_path.name}"
    file.write_text(PLUGIN.replace("NAME", name))
    parsers = chosen("qwen3", tool_parser=name, plugins=(str(file), None))
    assert parse(parsers, "a@@?b").content == "a@@?b"


@pytest.mark.parametrize("text", [None, "syntax error(", "raise ValueError('x')"])
def test_a_plug_in_that_can_t_be_loaded_is_named(tmp_path, text):
    file = tmp_path / "broken.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match="broken"):
        check_parser_names(None, None, (str(file),))
