"""What models of each family write, and what it means."""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """An answer of a family with its content and its calls."""

    family: str
    text: str
    content: str
    calls: tuple[tuple[str, str], ...]


def _ds(words: str) -> str:
    return f"<\uff5c{words}\uff5c>".replace(" ", "\u2581")


_BEGIN, _END = _ds("tool calls begin"), _ds("tool calls end")
_CALL, _SEP, _CALL_END = _ds("tool call begin"), _ds("tool sep"), _ds("tool call end")
_D = "\uff5cDSML\uff5c"

ARGUMENTS = '{"s": "a}\\"<x> {", "n": 1.70, "e":1e3, "u": "\\u00e9\\ud83d\\ude00"}'
TWO = (("f", ARGUMENTS), ("g", "{}"))

CASES = [
    Case(
        "hermes",
        "Let me see.\n"
        f'<tool_call>\n{{"name": "f", "arguments": {ARGUMENTS}}}\n</tool_call>\n'
        '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>',
        "Let me see.",
        TWO,
    ),
    Case("hermes", '<tool_call>{"name":"g"}</tool_call>', "", (("g", "{}"),)),
    Case("hermes", '<tool_call>{"name":"g","arguments":null}</tool_call>', "", (("g", "{}"),)),
    Case(
        "hermes",
        '<tool_call>{"arguments": {"a": 1}, "name":"g"}</tool_call>\nDone.',
        "Done.",
        (("g", '{"a": 1}'),),
    ),
    Case(
        "hermes",
        '<tool_call>{"name":"g","arguments":"{\\"a\\": \\"\\\\u00e9\\ud83d\\ude00\\"}"}'
        "</tool_call>",
        "",
        (("g", '{"a": "\\u00e9😀"}'),),
    ),
    Case(
        "hermes",
        '<tool_call>{"type":"function","function":{"name":"g","arguments":{"a":[{}]}}}</tool_call>',
        "",
        (("g", '{"a":[{}]}'),),
    ),
    Case(
        "hermes",
        '<tool_call>[{"name":"g","arguments":{}},{"name":"f","arguments":{"s":"1"}}]</tool_call>',
        "",
        (("g", "{}"), ("f", '{"s":"1"}')),
    ),
    Case(
        "hermes",
        'a\n<tool_call>{"name":"g","arguments":{}}</tool_call>\nb\n'
        '<tool_call>{"name":"g","arguments":{}}</tool_call>\nc',
        "a\nb\nc",
        (("g", "{}"), ("g", "{}")),
    ),
    Case(
        "qwen3_coder",
        'Hi\n<tool_call>\n<function=f>\n<parameter=s>\nline1\n  "q" </parameter> é\n</parameter>\n'
        '<parameter=n>\n5\n</parameter>\n<parameter=o>\n{"a": [1,2]}\n</parameter>\n'
        "<parameter=b>\nTrue\n</parameter>\n</function>\n</tool_call>",
        "Hi",
        (
            (
                "f",
                '{"s": "line1\\n  \\"q\\" </parameter> é", "n": 5, "o": {"a": [1,2]}, "b": true}',
            ),
        ),
    ),
    Case("hermes", '<tool_call>{"name":"g","arguments":{}}}}\n</tool_call>', "", (("g", "{}"),)),
    Case(
        "hermes",
        '<tool_call>no call</tool_call> <tool_call>{"name":"g","arguments":{}}</tool_call>',
        "<tool_call>no call</tool_call>",
        (("g", "{}"),),
    ),
    Case(
        "hermes",
        '<tool_call>{"name":"g","arguments":{\'a\': 1}}</tool_call>',
        "",
        (("g", "{'a': 1}}"),),
    ),
    Case(
        "hermes",
        '<tool_call>{"name":"g","arguments":[1]}</tool_call>',
        '<tool_call>{"name":"g","arguments":[1]}</tool_call>',
        (),
    ),
    Case(
        "qwen3_coder",
        "<function=g>\n</function>\n</tool_call>",
        "",
        (("g", "{}"),),
    ),
    Case(
        "qwen3_coder",
        "<tool_call>\n<function=f>\n<parameter=s>\nforgot\n<parameter=n>\nx\n</function>\n</tool_call>",
        "",
        (("f", '{"s": "forgot", "n": "x"}'),),
    ),
    Case(
        "minimax_m2",
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="s">x\n y</parameter>\n'
        '<parameter name="b">true</parameter>\n</invoke>\n<invoke name="g">\n</invoke>\n'
        "</minimax:tool_call>",
        "",
        (("f", '{"s": "x\\n y", "b": true}'), ("g", "{}")),
    ),
    Case(
        "glm45",
        "Sure.\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>v</arg_value>\n"
        "<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
        "Sure.",
        (("f", '{"s": "v", "n": 3}'),),
    ),
    Case(
        "glm47",
        "<tool_call>g</tool_call><tool_call>f<arg_key>s</arg_key><arg_value>v</arg_value>"
        "</tool_call>",
        "",
        (("g", "{}"), ("f", '{"s": "v"}')),
    ),
    Case(
        "seed_oss",
        "<seed:tool_call>\n<function=f>\n<parameter=s>v</parameter>\n</function>\n"
        "</seed:tool_call>",
        "",
        (("f", '{"s": "v"}'),),
    ),
    Case(
        "deepseek_v32",
        f'Now.\n\n<{_D}function_calls>\n<{_D}invoke name="f">\n'
        f'<{_D}parameter name="s" string="true">12</{_D}parameter>\n'
        f'<{_D}parameter name="x" string="false">[7]</{_D}parameter>\n</{_D}invoke>\n'
        f"</{_D}function_calls>",
        "Now.",
        (("f", '{"s": "12", "x": [7]}'),),
    ),
    Case(
        "deepseek_v3",
        f"{_BEGIN}{_CALL}function{_SEP}f\n```json\n{ARGUMENTS}\n```{_CALL_END}\n"
        f"{_CALL}function{_SEP}g\n```json\n{{}}\n```{_CALL_END}{_END}",
        "",
        TWO,
    ),
    Case(
        "deepseek_v31",
        f"ok{_BEGIN}{_CALL}f{_SEP}{ARGUMENTS}{_CALL_END}{_CALL}g{_SEP}{{}}{_CALL_END}{_END}",
        "ok",
        TWO,
    ),
    Case(
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
        f"{ARGUMENTS}<|tool_call_end|><|tool_call_begin|>functions.g:1"
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        "",
        TWO,
    ),
    Case(
        "llama3_json",
        f'{{"name": "f", "parameters": {ARGUMENTS}}}; {{"name": "g", "parameters": {{}}}}',
        "",
        TWO,
    ),
    Case(
        "llama3_json",
        '<|python_tag|>{"type": "function", "name": "f", "parameters": {"s": "x"}}',
        "",
        (("f", '{"s": "x"}'),),
    ),
    Case("llama3_json", '{"name": "Bob", "age": 3} x', '{"name": "Bob", "age": 3} x', ()),
    Case("llama3_json", '{"name": "Bob"}', '{"name": "Bob"}', ()),
    Case(
        "llama4_pythonic",
        "[f(s=\"a, b)\", n=-3, o={'k': [1, None, True, 'é\\n']}), g()]",
        "",
        (("f", '{"s": "a, b)", "n": -3, "o": {"k": [1, null, true, "é\\n"]}}'), ("g", "{}")),
    ),
    Case(
        "llama4_pythonic",
        "I will.<|python_start|>[f(s='it\\'s')]<|python_end|>",
        "I will.",
        (("f", '{"s": "it\'s"}'),),
    ),
    Case("pythonic", "[link](http://x) text", "[link](http://x) text", ()),
    Case("pythonic", '[f(s="""a\'"b""",)]', "", (("f", '{"s": "a\'\\"b"}'),)),
    Case(
        "olmo3",
        '<function_calls>\nf(s="x")\ng()\n</function_calls>',
        "",
        (("f", '{"s": "x"}'), ("g", "{}")),
    ),
    Case(
        "lfm2",
        '<|tool_call_start|>[f(s="x")]<|tool_call_end|>done',
        "done",
        (("f", '{"s": "x"}'),),
    ),
    Case(
        "mistral",
        f'[TOOL_CALLS] [{{"name": "f", "arguments": {ARGUMENTS}, "id": "abcdefghi"}}, '
        '{"name":"g","arguments":{}}]',
        "",
        TWO,
    ),
    Case(
        "mistral",
        f"Well.[TOOL_CALLS]f[ARGS]{ARGUMENTS}[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS]{{}}",
        "Well.",
        TWO,
    ),
    Case("mistral", '[TOOL_CALLS]f{"s": "x"}', "", (("f", '{"s": "x"}'),)),
    Case(
        "granite",
        '<|tool_call|>[{"name": "f", "arguments": {"s": "x"}}]',
        "",
        (("f", '{"s": "x"}'),),
    ),
    Case(
        "granite-20b-fc",
        '<function_call> {"name": "f", "arguments": {"s": "x"}}\n'
        '<function_call> {"name": "g", "arguments": {}}',
        "",
        (("f", '{"s": "x"}'), ("g", "{}")),
    ),
    Case(
        "phi4_mini_json",
        'functools[{"name": "f", "arguments": {"s": "x"}}, {"name":"g","arguments":{}}]',
        "",
        (("f", '{"s": "x"}'), ("g", "{}")),
    ),
    Case(
        "jamba",
        'Ok.<tool_calls>[{"name": "f", "arguments": {"s": "x"}}]</tool_calls>',
        "Ok.",
        (("f", '{"s": "x"}'),),
    ),
    Case(
        "internlm",
        'Ok.<|action_start|><|plugin|>\n{"name": "f", "parameters": {"s": "x"}}<|action_end|>',
        "Ok.",
        (("f", '{"s": "x"}'),),
    ),
    Case(
        "longcat",
        '<longcat_tool_call>{"name": "g", "arguments": {}}</longcat_tool_call>',
        "",
        (("g", "{}"),),
    ),
    Case(
        "xlam",
        '[{"name": "f", "arguments": {"s": "x"}}, {"name": "g", "arguments": {}}]',
        "",
        (("f", '{"s": "x"}'), ("g", "{}")),
    ),
    Case(
        "functiongemma",
        "<start_function_call>call:f{s:<escape>a,b}'<escape>,n:3,o:{k:[1,<escape>x<escape>]}}"
        "<end_function_call>",
        "",
        (("f", '{"s": "a,b}\'", "n": 3, "o": {"k": [1, "x"]}}'),),
    ),
    Case(
        "gemma4",
        'Hm.<|tool_call>call:f{s:<|"|>a,b}<|"|>,n:3,o:{<|"|>k<|"|>:[true,<|"|>x<|"|>]}}<tool_call|>'
        "<|tool_call>call:g{}<tool_call|>",
        "Hm.",
        (("f", '{"s": "a,b}", "n": 3, "o": {"k": [true, "x"]}}'), ("g", "{}")),
    ),
    Case(
        "openai",
        "<|channel|>analysis<|message|>think<|end|><|start|>assistant<|channel|>commentary"
        "<|message|>I will call.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
        f"<|constrain|>json<|message|>{ARGUMENTS}<|call|>"
        "<|start|>assistant to=functions.g<|channel|>commentary json<|message|>{}<|call|>",
        "I will call.",
        TWO,
    ),
    Case(
        "openai",
        " to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
        "",
        (("f", "{}"),),
    ),
    Case("openai", "<|channel|>final<|message|>Hello\n", "Hello\n", ()),
    Case("openai", "plain", "plain", ()),
]

FAMILIES = sorted({case.family for case in CASES})
