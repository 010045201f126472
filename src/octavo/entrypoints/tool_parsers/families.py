"""The families of models and how they write tool calls: one entry each."""

from __future__ import annotations

import re
from functools import partial

from octavo.entrypoints.tool_parsers.gemma import GemmaCalls, GemmaSyntax
from octavo.entrypoints.tool_parsers.harmony import HarmonyCalls
from octavo.entrypoints.tool_parsers.json_calls import JsonCalls, JsonSyntax
from octavo.entrypoints.tool_parsers.mistral import MistralCalls
from octavo.entrypoints.tool_parsers.named_calls import NamedCalls, NamedSyntax
from octavo.entrypoints.tool_parsers.pythonic import PythonicCalls, PythonicSyntax
from octavo.entrypoints.tool_parsers.tagged_calls import TaggedCalls, TaggedSyntax


def _deepseek(words: str) -> str:
    """A special token of DeepSeek's: its bars and blanks are not those that one types."""
    return f"<\uff5c{words}\uff5c>".replace(" ", "\u2581")


def _dsml(tag: str) -> str:
    """A tag of DeepSeek's markup language."""
    slash, name = ("/", tag[1:]) if tag.startswith("/") else ("", tag)
    return f"<{slash}\uff5cDSML\uff5c{name}"


# objects with a name and arguments

HERMES = partial(JsonCalls, JsonSyntax(tags=(("<tool_call>", "</tool_call>"),)))
GRANITE = partial(
    JsonCalls,
    JsonSyntax(tags=(("<|tool_call|>", ""), ("<tool_call>", "</tool_call>")), in_list=True),
)
GRANITE_20B = partial(JsonCalls, JsonSyntax(tags=(("<function_call>", ""),)))
HUNYUAN = partial(JsonCalls, JsonSyntax(tags=(("<tool_calls>", "</tool_calls>"),), in_list=True))
INTERNLM = partial(
    JsonCalls,
    JsonSyntax(
        tags=(("<|action_start|><|plugin|>", "<|action_end|>"),),
        arguments=("parameters", "arguments"),
    ),
)
JAMBA = partial(JsonCalls, JsonSyntax(tags=(("<tool_calls>", "</tool_calls>"),), in_list=True))
LLAMA3_JSON = partial(
    JsonCalls,
    JsonSyntax(
        tags=(("<|python_tag|>", ""),),
        bare=True,
        separators=";,",
        arguments=("parameters", "arguments"),
    ),
)
LONGCAT = partial(JsonCalls, JsonSyntax(tags=(("<longcat_tool_call>", "</longcat_tool_call>"),)))
PHI4 = partial(
    JsonCalls,
    JsonSyntax(tags=(("functools", ""), ("<|tool_call|>", "<|/tool_call|>")), in_list=True),
)
XLAM = partial(
    JsonCalls,
    JsonSyntax(
        tags=(("[TOOL_CALLS]", ""), ("<tool_call>", "</tool_call>")), bare=True, in_list=True
    ),
)
ANY_JSON = partial(JsonCalls, JsonSyntax(bare=True, in_list=True))

# a name behind a mark, then the arguments

DEEPSEEK_V3 = partial(
    NamedCalls,
    NamedSyntax(
        sections=(
            (
                _deepseek("tool calls begin"),
                _deepseek("tool calls end"),
            ),
        ),
        call=_deepseek("tool call begin"),
        before=_deepseek("tool sep"),
        between="\n",
        fence="```json",
        after="```",
        end=_deepseek("tool call end"),
        written="function" + _deepseek("tool sep") + "{}\n```json\n",
    ),
)
DEEPSEEK_V31 = partial(
    NamedCalls,
    NamedSyntax(
        sections=(
            (
                _deepseek("tool calls begin"),
                _deepseek("tool calls end"),
            ),
        ),
        call=_deepseek("tool call begin"),
        between=_deepseek("tool sep"),
        end=_deepseek("tool call end"),
        written="{}" + _deepseek("tool sep"),
    ),
)
KIMI_K2 = partial(
    NamedCalls,
    NamedSyntax(
        sections=(("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),),
        call="<|tool_call_begin|>",
        between="<|tool_call_argument_begin|>",
        end="<|tool_call_end|>",
        header=re.compile(r"(?P<id>(?:functions\.)?(?P<name>.+?)(?::\d+)?)"),
        written="functions.{}:0<|tool_call_argument_begin|>",
        new_id=lambda name, number: f"functions.{name}:{number}",
        own_ids=re.compile(r"functions\..+:\d+"),
    ),
)
MISTRAL = MistralCalls

# a tag for each parameter

QWEN3_CODER = partial(
    TaggedCalls,
    TaggedSyntax(
        section="<tool_call>",
        section_end="</tool_call>",
        call="<function=",
        name_ends=(">",),
        end="</function>",
        key="<parameter=",
        key_end=">",
        value_end="</parameter>",
        lines=True,
    ),
)
SEED_OSS = partial(
    TaggedCalls,
    TaggedSyntax(
        section="<seed:tool_call>",
        section_end="</seed:tool_call>",
        call="<function=",
        name_ends=(">",),
        end="</function>",
        key="<parameter=",
        key_end=">",
        value_end="</parameter>",
    ),
)
MINIMAX_M2 = partial(
    TaggedCalls,
    TaggedSyntax(
        section="<minimax:tool_call>",
        section_end="</minimax:tool_call>",
        call='<invoke name="',
        name_ends=('">',),
        end="</invoke>",
        key='<parameter name="',
        key_end='">',
        value_end="</parameter>",
    ),
)
DEEPSEEK_V32 = partial(
    TaggedCalls,
    TaggedSyntax(
        section=_dsml("function_calls>"),
        section_end=_dsml("/function_calls>"),
        call=_dsml('invoke name="'),
        name_ends=('">',),
        end=_dsml("/invoke>"),
        key=_dsml('parameter name="'),
        key_end='">',
        value_end=_dsml("/parameter>"),
        attribute="string",
    ),
)
GLM = partial(
    TaggedCalls,
    TaggedSyntax(
        call="<tool_call>",
        name_ends=("\n", "<arg_key>"),
        end="</tool_call>",
        key="<arg_key>",
        key_end="</arg_key>",
        value="<arg_value>",
        value_end="</arg_value>",
    ),
)

# as Python calls functions

LLAMA4_PYTHONIC = partial(
    PythonicCalls, PythonicSyntax(tags=(("<|python_start|>", "<|python_end|>"),), bare=True)
)
LFM2 = partial(PythonicCalls, PythonicSyntax(tags=(("<|tool_call_start|>", "<|tool_call_end|>"),)))
OLMO3 = partial(
    PythonicCalls, PythonicSyntax(tags=(("<function_calls>", "</function_calls>"),), lines=True)
)
PYTHONIC = partial(PythonicCalls, PythonicSyntax(bare=True))

# syntaxes of their own

FUNCTIONGEMMA = partial(
    GemmaCalls, GemmaSyntax("<start_function_call>", "<end_function_call>", "<escape>")
)
GEMMA4 = partial(GemmaCalls, GemmaSyntax("<|tool_call>", "<tool_call|>", '<|"|>'))
OPENAI = HarmonyCalls
