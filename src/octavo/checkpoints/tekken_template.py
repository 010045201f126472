"""Chat templates of Mistral's tokenizer versions, for folders that hold Mistral's files alone.

They write what Mistral's own code (mistral-common) encodes for a conversation.
"""

from __future__ import annotations

# The parts in @ differ between versions; comments say from which one on.
_WHOLE = """
{%- macro text(content, role) %}
{%- if content is string %}{{- content }}
{%- elif content %}
{%- for part in content %}
{%- if part.type == "text" %}
{{- "\\n\\n" if loop.previtem is defined and loop.previtem.type == "text" }}
{{- part.text }}@THINKING@
{%- else %}{{- raise_exception("a " ~ role ~ " message has a part of type " ~ part.type) }}
{%- endif %}
{%- endfor %}
{%- endif %}
{%- endmacro %}
{%- macro arguments(call) %}
{%- if call.function.arguments is string %}{{- call.function.arguments or "{}" }}
{%- else %}{{- (call.function.arguments or {}) | tojson }}
{%- endif %}
{%- endmacro %}
{%- macro available() %}
{%- if tools %}
{{- "[AVAILABLE_TOOLS][" }}
{%- for tool in tools %}
{{- '{"type": "function", "function": {"name": ' ~ (tool.function.name | tojson) }}
{{- ', "description": ' ~ ((tool.function.description or "") | tojson) }}
{{- ', "parameters": ' ~ ((tool.function.parameters or {}) | tojson) ~ "}}" }}
{{- ", " if not loop.last }}
{%- endfor %}
{{- "][/AVAILABLE_TOOLS]" }}
{%- endif %}
{%- endmacro %}
{#- Messages of a user that follow each other are one. -#}
{%- set ns = namespace(last=-1, before="", first=true, system="") %}
{%- for turn in messages %}
{%- if turn.role == "system" %}
{%- set ns.system = ns.system ~ ("\\n\\n" if ns.system else "") ~ text(turn.content, "system") %}
{%- else %}
{%- if turn.role == "user" and ns.before != "user" %}{%- set ns.last = loop.index0 %}{%- endif %}
{%- set ns.before = turn.role %}
{%- endif %}
{%- endfor %}
{{- bos_token -}}
{%- set ns.before = "" %}
{%- for turn in messages %}
{%- if ns.before == "user" and turn.role not in ("user", "system") %}
{{- "[/INST]" }}
{%- endif %}
{%- if turn.role == "system" %}
@SYSTEM@
{%- elif turn.role == "user" %}
{%- if ns.before == "user" %}
{{- "\\n\\n" }}
{%- else %}
{%- if @TOOLS_HERE@ %}{{- available() }}{%- endif %}
{{- "[INST]" }}
@QUESTION@
{%- set ns.first = false %}
{%- endif %}
{{- text(turn.content, "user") }}
{%- elif turn.role == "assistant" %}
@ANSWER@
{{- eos_token }}
{%- elif turn.role == "tool" %}
@RESULT@
{%- else %}
{{- raise_exception("the role " ~ turn.role ~ " is not one of system, user, assistant, tool") }}
{%- endif %}
{%- if turn.role != "system" %}{%- set ns.before = turn.role %}{%- endif %}
{%- endfor %}
{%- if ns.before == "user" %}{{- "[/INST]" }}{%- endif %}
"""
_THINKING = """
{%- elif part.type == "thinking" %}
{{- "[THINK]" ~ (part.thinking if part.thinking is string else text(part.thinking, role)) }}
{{- "[/THINK]" if part.closed is not defined or part.closed }}"""
_SYSTEM_7 = """
{%- if ns.before == "user" %}{{- "[/INST]" }}{%- set ns.before = "system" %}{%- endif %}
{{- "[SYSTEM_PROMPT]" ~ text(turn.content, "system") ~ "[/SYSTEM_PROMPT]" }}"""
_QUESTION_3 = """
{%- if loop.index0 == ns.last and ns.system %}{{- ns.system ~ "\\n\\n" }}{%- endif %}"""
_ANSWER = """
{%- set said = text(turn.content, "assistant") %}
{{- said.rstrip(" ") }}
{%- if turn.tool_calls %}@CALLS@
{%- endif %}"""
_CALLS_3 = """
{{- "[TOOL_CALLS][" }}
{%- for call in turn.tool_calls %}
{{- '{"name": ' ~ (call.function.name | tojson) ~ ', "arguments": ' ~ arguments(call) }}
{{- ', "id": ' ~ (call.id | tojson) if call.id }}
{{- "}" ~ (", " if not loop.last else "]") }}
{%- endfor %}"""
_CALLS_11 = """
{%- for call in turn.tool_calls %}
{{- "[TOOL_CALLS]" ~ call.function.name ~ ("[CALL_ID]" ~ call.id if call.id else "") }}
{{- "[ARGS]" ~ arguments(call) }}
{%- endfor %}"""
_CALLS_13 = """
{%- for call in turn.tool_calls %}
{{- "[TOOL_CALLS]" ~ call.function.name ~ "[ARGS]" ~ arguments(call) }}
{%- endfor %}"""
_RESULT_3 = """
{%- set found = text(turn.content, "tool") %}
{#- What is JSON goes in as it is. -#}
{%- set plain = found[:1] not in ("{", "[") and found not in ("true", "false", "null") %}
{%- set plain = plain and not (found[-1:].isdigit() and found | float(none) is not none) %}
{{- '[TOOL_RESULTS]{"content": ' ~ (found | tojson if plain else found) }}
{{- ', "call_id": ' ~ (turn.tool_call_id | tojson) ~ "}[/TOOL_RESULTS]" }}"""
_RESULT_7 = """
{{- "[TOOL_RESULTS]" ~ turn.tool_call_id ~ "[TOOL_CONTENT]" ~ text(turn.content, "tool") }}
{{- "[/TOOL_RESULTS]" }}"""
_RESULT_13 = """
{{- "[TOOL_RESULTS]" ~ text(turn.content, "tool") ~ "[/TOOL_RESULTS]" }}"""
_AT_THE_LAST, _AT_THE_FIRST = "loop.index0 == ns.last", "ns.first"


def _template(
    *,
    calls: str,
    result: str,
    system: str = _SYSTEM_7,
    question: str = "",
    tools_here: str = _AT_THE_LAST,
    thinking: str = "",
) -> str:
    parts = {
        "ANSWER": _ANSWER,
        "CALLS": calls,
        "RESULT": result,
        "SYSTEM": system,
        "QUESTION": question,
        "TOOLS_HERE": tools_here,
        "THINKING": thinking,
    }
    text = _WHOLE
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


_TEMPLATES = {
    # Until version 3 the system prompt stands in the last question.
    3: _template(calls=_CALLS_3, result=_RESULT_3, system="", question=_QUESTION_3),
    7: _template(calls=_CALLS_3, result=_RESULT_7),
    11: _template(calls=_CALLS_11, result=_RESULT_7),
    13: _template(calls=_CALLS_13, result=_RESULT_13, tools_here=_AT_THE_FIRST, thinking=_THINKING),
}


# Before version 2 the marks of turns were text, and there were no tools.
_V1 = """
{%- set ns = namespace(system="") %}
{{- bos_token -}}
{%- for turn in messages %}
{%- if turn.role == "system" and loop.first %}{%- set ns.system = turn.content ~ "\\n\\n" %}
{%- elif turn.role == "user" %}
{{- "[INST] " ~ ns.system ~ turn.content ~ " [/INST]" }}{%- set ns.system = "" %}
{%- elif turn.role == "assistant" and not turn.tool_calls %}
{{- " " ~ turn.content ~ eos_token }}
{%- else %}
{{- raise_exception("the role " ~ turn.role ~ " is not one of first system, user, assistant") }}
{%- endif %}
{%- endfor %}
"""
# Version 2 forgets the calls of earlier questions, which no other does.
_REFUSE = 'raise_exception("models of this tokenizer version take no tools here")'
_NO_TOOLS = f"\n{{{{- {_REFUSE} }}}}"
_OF_SENTENCEPIECE = {
    1: _V1,
    2: _template(
        calls=_NO_TOOLS,
        result=_NO_TOOLS,
        system="",
        question=_QUESTION_3,
        tools_here=f"tools and {_REFUSE}",
    ),
    3: _TEMPLATES[3],
    7: _TEMPLATES[7],
}


def sentencepiece_template(version: int) -> str | None:
    """The template of a version whose tokenizer is a SentencePiece model; None: not known."""
    return _OF_SENTENCEPIECE.get(version)


def chat_template(version: int) -> str | None:
    """The template of a tokenizer version; None for one that is not known."""
    return _TEMPLATES.get(version)
