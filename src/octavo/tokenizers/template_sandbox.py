"""The Jinja environment of chat templates: transformers' names, no way to Python, and bounds."""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import ext, nodes, runtime, sandbox, utils, visitor
from jinja2.parser import Parser

_HUGE_WIDTH = re.compile(r"\d{6,}|\*|:[^}]*\{")  # in a format string
_MAX_INTEGER_BITS = 4096
_STEPS_BETWEEN_CHECKS = 256


@dataclass(frozen=True)
class TemplateLimits:
    """What one rendering may use.

    `max_characters` bounds the result and every string or list the template builds on its way;
    `max_cpu_seconds` is CPU time of the rendering thread.
    """

    max_characters: int = 1 << 23
    max_cpu_seconds: float = 5.0


class LimitExceeded(jinja2.TemplateError):
    """A template that was stopped because it asked for too much."""


class TemplateRefusal(jinja2.TemplateError):
    """What a template says when it calls raise_exception."""


class _Meter:
    """The CPU time of one rendering, read every few steps."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._end = time.thread_time() + limit
        self._steps_left = _STEPS_BETWEEN_CHECKS

    def step(self, size: int = 0) -> None:
        """Count one loop turn or call that touches `size` characters or items."""
        self._steps_left -= 1 + (size >> 10)
        if self._steps_left <= 0:
            self._steps_left = _STEPS_BETWEEN_CHECKS
            if time.thread_time() > self._end:
                raise LimitExceeded(f"it ran longer than {self._limit:g} s")


# Set while a template renders; a rendering stays in one thread.
_METER: ContextVar[_Meter] = ContextVar("octavo_template_meter")


class ChatEnvironment(sandbox.ImmutableSandboxedEnvironment):
    """Renders untrusted chat templates with what transformers gives them.

    Beside Jinja's own there are raise_exception, strftime_now, tojson as transformers writes it,
    loop controls and the generation tag. Loops, calls and filters are metered, and an operation
    that would build more than `limits` allow is refused before it does. Thread-safe.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, limits: TemplateLimits) -> None:
        # The optimizer would run constant filter calls while compiling, outside any bound.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            extensions=[_GenerationTag, ext.loopcontrols],
        )
        self._limits = limits
        self.concat = self.join_texts  # type: ignore[method-assign]
        self.filters["tojson"] = _tojson
        for name, function in list(self.filters.items()):
            self.filters[name] = self._metered_filter(name, function)
        del self.globals["lipsum"]  # it writes text without bound
        self.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
            "dict": _new_dict,
            "namespace": _Namespace,
        }

    def render_bounded(self, template: jinja2.Template, variables: Mapping[str, Any]) -> str:
        """The template's text. Raises jinja2.TemplateError or what its expressions raise."""
        token = _METER.set(_Meter(self._limits.max_cpu_seconds))
        try:
            return self.join_texts(template.generate(**variables))
        finally:
            _METER.reset(token)

    def join_texts(self, texts: Iterable[str]) -> str:
        """The texts in one; stopped when they get too long."""
        pieces, total = [], 0
        for text in texts:
            total += len(text)
            self._check_size(total)
            pieces.append(text)
        return "".join(pieces)

    def join_values(self, *values: Any) -> str:
        """The `~` operator."""
        return self.join_texts(map(str, values))

    def metered_loop(self, items: Iterable[Any]) -> _MeteredLoop:
        """What a `for` runs over."""
        return _MeteredLoop(items, _METER.get())

    def call(self, context: runtime.Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Every call in a template."""
        owner = getattr(function, "__self__", None)
        if isinstance(owner, str):
            args = self._before(function.__name__, owner, args, kwargs)
        else:
            _METER.get().step()
        return self._after(super().call(context, function, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Access to str.format, which is not a plain method in the sandbox."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            self._check_format(value.__self__)
        return wrapped

    def call_binop(self, context: runtime.Context, operator: str, left: Any, right: Any) -> Any:
        """`+`, `*`, `**` and `%`."""
        if operator == "+":
            self._check_size(_size(left) + _size(right))
        elif operator == "%":
            if isinstance(left, str):
                self._check_format(left)
        elif isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length()
            bits = bits * abs(right) if operator == "**" else bits + right.bit_length()
            if bits > _MAX_INTEGER_BITS:
                raise LimitExceeded(f"it computes an integer of {bits} bits")
        elif isinstance(left, int) or isinstance(right, int):
            count, items = (left, right) if isinstance(left, int) else (right, left)
            self._check_size(count * _size(items))
        return super().call_binop(context, operator, left, right)

    def _generate(
        self,
        source: nodes.Template,
        name: str | None,
        filename: str | None,
        defer_init: bool = False,
    ) -> str:
        metered = _AddMeters().visit(source)
        return super()._generate(metered, name, filename, defer_init)

    def _metered_filter(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        first = 1 if hasattr(function, "jinja_pass_arg") else 0

        @functools.wraps(function)
        def metered(*args: Any, **kwargs: Any) -> Any:
            subject = args[first]
            if name == "join":
                subject = list(subject)
            rest = self._before(name, subject, args[first + 1 :], kwargs)
            return self._after(function(*args[:first], subject, *rest, **kwargs))

        return metered

    def _before(
        self, name: str, subject: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """Check a filter or string method that is about to run; returns its arguments."""
        size = _size(subject)
        _METER.get().step(size)
        if name == "join" and isinstance(subject, str):  # the method: separator.join(items)
            args = (list(args[0]), *args[1:]) if args else args
            self._check_size(sum(map(_size, args[0])) + len(args[0]) * size if args else 0)
        elif name == "format" and isinstance(subject, str):
            self._check_format(subject)
        else:
            values = [*args, *kwargs.values()]
            self._check_size(_built(name, subject, values))
        return args

    def _after(self, result: Any) -> Any:
        self._check_size(_size(result))
        return result

    def _check_size(self, size: int) -> None:
        if size > self._limits.max_characters:
            raise LimitExceeded(
                f"it builds a text or list of {size}; the limit is {self._limits.max_characters}"
            )

    def _check_format(self, text: str) -> None:
        if _HUGE_WIDTH.search(text):
            raise LimitExceeded("it uses a format of computed or very large width")


class _MeteredLoop:
    """An iterable whose items are counted as they are taken; as long as what it wraps."""

    def __init__(self, items: Iterable[Any], meter: _Meter) -> None:
        self._items = items
        self._meter = meter

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            self._meter.step()
            yield item

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]


class _AddMeters(visitor.NodeTransformer):
    """Routes what Jinja compiles to bare Python (loops, `~`) through the environment."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _environment_call("metered_loop", [node.iter], node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _environment_call("join_values", node.nodes, node.lineno)


class _GenerationTag(ext.Extension):
    """{% generation %}...{% endgeneration %}: marks an answer for training; renders as it is."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's protocol

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The tag's body, in its place."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Namespace(utils.Namespace):
    """namespace(), without names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        for name in dict(*args[1:], **kwargs):
            _check_attribute(name)
        utils.Namespace.__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        super().__setitem__(name, value)


def _check_attribute(name: str) -> None:
    if name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace can't have the attribute {name!r}")


def _environment_call(name: str, args: Sequence[nodes.Node], lineno: int) -> nodes.Call:
    call = nodes.Call(nodes.EnvironmentAttribute(name), list(args), [], None, None)
    call.set_lineno(lineno)
    return call


def _built(name: str, subject: Any, values: list[Any]) -> int:
    """About how much a filter or string method builds, for those that can multiply their input."""
    numbers = [value for value in values if isinstance(value, int)]
    number = max(numbers, default=1)
    texts = [value for value in values if isinstance(value, str)]
    if name in ("center", "ljust", "rjust", "zfill", "batch", "slice", "tojson"):
        return number
    if not isinstance(subject, str):
        separator = len(texts[0]) if name == "join" and texts else 0
        return sum(map(_size, subject)) + separator * len(subject) if name == "join" else 0
    if name in ("indent", "expandtabs", "wordwrap"):
        width = max(number, *map(len, texts), 1)
        return (subject.count("\n") + subject.count("\t") + 1) * width
    if name == "replace" and len(texts) >= 2:
        found = subject.count(texts[0]) if texts[0] else len(subject) + 1
        return found * len(texts[1])
    if name == "translate" and values and isinstance(values[0], Mapping):
        return len(subject) * max(map(_size, values[0].values()), default=0)
    return 0


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | dict) else 0


def _raise_exception(message: Any) -> None:
    raise TemplateRefusal(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _new_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers' templates expect it: no HTML escapes, non-ASCII letters as they are."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
