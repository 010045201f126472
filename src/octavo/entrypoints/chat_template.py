"""ChatTemplate: a conversation as the text its model was trained on."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta

from octavo.entrypoints.call_history import CallForm, find_call_form
from octavo.tokenizers.template_sandbox import ChatEnvironment, TemplateLimits, TemplateRefusal
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.errors import ConfigError, RequestError

MAX_SOURCE_CHARACTERS = 1 << 20
RESERVED_NAMES = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "documents",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "sanitize_control_tokens",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)

# The names a message's reasoning goes by; the first is the one templates read.
_REASONING = ("reasoning_content", "thinking", "reasoning")
_PROBE = "\ue000probe\ue001"
_CUT = "\ue000cut\ue001 "  # the space shows whether the template trims


class ChatTemplate:
    """A Jinja chat template, rendered as transformers' apply_chat_template does.

    `source` is the template's text, or named texts of which "tool_use" serves requests with tools
    and "default" the others. Templates print the begin token themselves: encode the result with
    add_special_tokens=False. Raises RequestError if the template is not valid Jinja.

    Thread-safe. A rendering is bounded by `limits`.
    """

    def __init__(
        self,
        source: str | Mapping[str, str],
        tokenizer: Tokenizer,
        limits: TemplateLimits | None = None,
    ) -> None:
        sources = {"default": source} if isinstance(source, str) else dict(source)
        self._environment = ChatEnvironment(limits or TemplateLimits())
        self._sources = sources
        self._templates = {name: self._compile(text) for name, text in sources.items()}
        self._special_tokens = tokenizer.special_tokens

    @property
    def text(self) -> str:
        """The templates' own text, all of them."""
        return "\n".join(self._sources.values())

    @functools.cached_property
    def handles_parts(self) -> bool:
        """Whether the template itself takes message contents that are lists of parts.

        Found by trying: it must write a list of one text part as it writes the text.
        """
        part = {"type": "text", "text": _PROBE}
        as_text, as_parts = (
            self._try([{"role": "user", "content": content}]) for content in (_PROBE, [part])
        )
        return as_text is not None and as_text == as_parts and _PROBE in as_text

    @functools.cached_property
    def call_form(self) -> CallForm:
        """How the template takes the tool calls of a conversation."""
        return find_call_form(self._try)

    @functools.cached_property
    def variables(self) -> frozenset[str]:
        """The variables that the templates read."""
        found: set[str] = set()
        for source in self._sources.values():
            found |= meta.find_undeclared_variables(self._environment.parse(source))
        return frozenset(found)

    def _try(self, messages: list[dict[str, Any]]) -> str | None:
        """What the template makes of these messages; None if it fails, which may be anyhow."""
        variables = {
            "messages": messages,
            "tools": None,
            "documents": None,
            "add_generation_prompt": True,
        }
        try:
            return self._environment.render_bounded(
                self._choose(None), self._special_tokens | variables
            )
        except Exception:
            return None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool | str = False,
        **kwargs: Any,
    ) -> str:
        """The prompt's text.

        messages: objects with a role and a content, which is a text or a list of text parts;
        parts are joined by newlines unless the template takes lists. With `continue_final_message`
        (or the name of the field to continue) the text ends where that message ends, so that the
        model goes on with it. Other keywords are variables of the template; RESERVED_NAMES are
        refused. Raises RequestError, with the template's own words where it refuses.
        """
        reserved = sorted(RESERVED_NAMES & kwargs.keys())
        if reserved:
            raise RequestError(
                f"chat_template_kwargs can't set {reserved[0]!r}; it is a field of the request",
                "chat_template_kwargs",
            )
        if not messages:
            raise RequestError("messages is empty; send at least one message", "messages")
        chat = [self._plain_message(message) for message in messages]
        field = "content" if continue_final_message is True else continue_final_message
        if field:
            if add_generation_prompt:
                raise RequestError(
                    "continue_final_message and add_generation_prompt exclude each other; set one",
                    "continue_final_message",
                )
            ending = _mark_end(chat[-1], field)
        variables = self._special_tokens | {
            "messages": chat,
            "tools": _plain(tools, "tools"),
            "documents": _plain(documents, "documents"),
            "add_generation_prompt": add_generation_prompt,
            **_plain(kwargs, "chat_template_kwargs"),
        }
        text = self._render(self._choose(tools), variables)
        return _cut(text, ending) if field else text

    def _choose(self, tools: Sequence[Mapping[str, Any]] | None) -> jinja2.Template:
        name = "tool_use" if tools and "tool_use" in self._templates else "default"
        if name not in self._templates:
            raise RequestError(
                f"the model has chat templates named {', '.join(self._templates)} and no default"
            )
        return self._templates[name]

    def _compile(self, source: str) -> jinja2.Template:
        if len(source) > MAX_SOURCE_CHARACTERS:
            raise RequestError(
                f"the chat template has {len(source)} characters; at most {MAX_SOURCE_CHARACTERS}",
                "chat_template",
            )
        try:
            return self._environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise RequestError(
                f"the chat template is not valid Jinja, line {error.lineno}: {error.message}",
                "chat_template",
            ) from error
        except (RecursionError, SyntaxError, MemoryError) as error:
            raise RequestError(
                f"the chat template can't be compiled: {error}", "chat_template"
            ) from error

    def _render(self, template: jinja2.Template, variables: Mapping[str, Any]) -> str:
        try:
            return self._environment.render_bounded(template, variables)
        except TemplateRefusal as error:
            raise RequestError(str(error), "messages") from error
        # Its expressions run on what the client sent and may raise anything.
        except Exception as error:
            raise RequestError(
                f"the chat template failed on these messages: {error}", "messages"
            ) from error

    def _plain_message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        plain = _plain(message, "messages")
        if not isinstance(plain, dict):
            raise RequestError(
                f"messages holds a {type(message).__name__}; a message is an object with role and "
                "content",
                "messages",
            )
        plain = {name: value for name, value in plain.items() if value is not None}
        if plain.get("role") == "assistant":
            if plain.get("tool_calls"):
                self.call_form.apply(plain)
            else:
                plain.setdefault("content", "")
        reasoning = next((plain[name] for name in _REASONING if name in plain), None)
        if reasoning is not None:
            plain = {"thinking": reasoning, **plain, "reasoning_content": reasoning}
        if isinstance(plain.get("content"), list) and not self.handles_parts:
            plain["content"] = "\n".join(map(_part_text, plain["content"]))
        return plain


def _part_text(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    if not isinstance(text, str):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        raise RequestError(
            f"a message has a part of type {kind!r}; this model takes text parts only", "messages"
        )
    return text


def _mark_end(message: dict[str, Any], field: str) -> str:
    """Put _CUT after the text of a message's field; returns that text."""
    names = [field]
    if field in _REASONING:
        names = [name for name in _REASONING if message.get(name) == message.get(field)]
    value = message.get(field)
    if isinstance(value, list):
        parts = [part for part in value if isinstance(part, dict) and "text" in part]
        if parts:
            text = parts[-1]["text"]
            parts[-1]["text"] = text + _CUT
            return str(text)
    if not isinstance(value, str):
        raise RequestError(
            f"continue_final_message: the last message has no text in {field!r} to continue",
            "continue_final_message",
        )
    for name in names:
        message[name] = value + _CUT
    return value


def _cut(text: str, ending: str) -> str:
    """The rendering up to the end of the continued message, whose text is `ending`."""
    position = text.rfind(_CUT.strip())
    if position < 0 or ending.strip() not in text:
        raise RequestError(
            "continue_final_message: the chat template does not write the last message as it is, "
            "so it can't be continued",
            "continue_final_message",
        )
    kept = text[:position]
    return kept if text.startswith(_CUT, position) else kept.rstrip()


def _plain(value: Any, where: str) -> Any:
    """JSON types only, copied: objects could carry methods that a template may call."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(item, where) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, where) for item in value]
    if isinstance(value, str):
        return str.__str__(value)
    if callable(dump := getattr(value, "model_dump", None)):
        return _plain(dump(), where)
    raise RequestError(
        f"{where} holds a {type(value).__name__}; it takes texts, numbers, lists and objects", where
    )


def load_chat_template(setting: str | None, tokenizer: Tokenizer | None) -> ChatTemplate | None:
    """The template chosen at start: `setting` (a file or the text itself), else the model's own.

    None without a tokenizer or where the model has no template. Raises ConfigError for a file
    that can't be read.
    """
    if tokenizer is None:
        return None
    source: str | Mapping[str, str] = tokenizer.chat_templates
    if setting is not None:
        source = template_source(setting)
    return ChatTemplate(source, tokenizer) if source else None


def template_source(setting: str) -> str:
    """The text of a template that is given as a file or as itself.

    Raises ConfigError for a file that can't be read.
    """
    if "{" in setting:
        return setting
    path = Path(setting)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"chat_template={str(path)!r} can't be read ({error}); give a file of UTF-8 text or "
            "the template itself"
        ) from error
