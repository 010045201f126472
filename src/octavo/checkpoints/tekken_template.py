"""Chat templates of Mistral's tokenizer versions, for folders that hold tekken.json alone."""

from __future__ import annotations

_TURNS = """
{%- if tools %}
{{- raise_exception("the model's files have no template for tools; give --chat-template") }}
{%- endif %}
{%- set system = messages[0].content if messages and messages[0].role == "system" else none %}
{%- set turns = messages[1:] if system is not none else messages %}
{{- bos_token -}}
@SYSTEM@
{%- for turn in turns %}
{%- if turn.role == "user" %}
{{- "[INST]" }}@QUESTION@{{ turn.content + "[/INST]" }}
{%- elif turn.role == "assistant" %}
{{- turn.content + eos_token }}
{%- else %}
{{- raise_exception("the role " ~ turn.role ~ " is not one of user, assistant, first system") }}
{%- endif %}
{%- endfor %}
"""
_OF_ITS_OWN = """
{%- if system is not none %}
{{- "[SYSTEM_PROMPT]" + system + "[/SYSTEM_PROMPT]" }}
{%- endif -%}
"""
_IN_THE_LAST = """{{ system + "\\n\\n" if loop.last and system is not none else "" }}"""
# Until version 3 the system prompt stands in the last question.
_V3 = _TURNS.replace("@SYSTEM@", "").replace("@QUESTION@", _IN_THE_LAST)
_V7 = _TURNS.replace("@SYSTEM@", _OF_ITS_OWN).replace("@QUESTION@", "")
_TEMPLATES = {3: _V3, 7: _V7, 11: _V7, 13: _V7}


def chat_template(version: int) -> str | None:
    """The template of a tokenizer version; None for one that is not known."""
    return _TEMPLATES.get(version)
