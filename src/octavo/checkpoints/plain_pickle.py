"""Pickles of plain data, read without running anything: the few opcodes needed, interpreted."""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable, Mapping
from typing import Any

from octavo.types.errors import CheckpointError

# What a pickle's opcodes may be given; anything else makes it malformed.
_FAULTS = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERALS = frozenset(
    (
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "LONG4",
        "BINFLOAT",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
    )
)
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_GET = frozenset(("BINGET", "LONG_BINGET"))
_PUT = frozenset(("BINPUT", "LONG_BINPUT"))
_NOTHING = frozenset(("PROTO", "FRAME"))
_MARK = object()


class PlainPickle:
    """Reads pickles whose only names are those of a table.

    `names` maps "module.name" to what stands for it. Of those, the ones in `calls` may be called,
    with arguments that are plain data or what other calls returned; nothing is ever imported, and
    state for objects other than dicts is refused. `load_id` makes something of a persistent id.
    """

    def __init__(
        self,
        names: Mapping[str, Any],
        calls: Mapping[str, Callable[..., Any]],
        load_id: Callable[[Any], Any],
    ) -> None:
        self._names = names
        self._calls = calls
        self._load_id = load_id

    def read(self, stream: io.BytesIO, source: str) -> Any:
        """The next pickle of the stream; CheckpointError names `source` and what is refused."""
        try:
            return _Run(self._names, self._calls, self._load_id, source).run(stream)
        except _FAULTS as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(
                f"{source} is malformed: its pickle can't be read ({error}); download it again"
            ) from error


class _Name(str):
    """A name of the table, by itself."""

    __slots__ = ()


class _Run:
    """The stack and memory of one pickle."""

    def __init__(
        self,
        names: Mapping[str, Any],
        calls: Mapping[str, Callable[..., Any]],
        load_id: Callable[[Any], Any],
        source: str,
    ) -> None:
        self._names = names
        self._calls = calls
        self._load_id = load_id
        self._source = source
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, stream: io.BytesIO) -> Any:
        """Follow the opcodes up to STOP."""
        stack = self._stack
        argument: Any
        for opcode, argument, _ in pickletools.genops(stream):
            name = opcode.name
            if name in _PUT:
                self._memo[argument] = stack[-1]
            elif name in _GET:
                stack.append(self._memo[argument])
            elif name in _LITERALS:
                stack.append(argument)
            elif name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            elif name in _EMPTY:
                stack.append(_EMPTY[name]())
            elif name in _TUPLES:
                self._tuple(_TUPLES[name])
            elif name == "STOP":
                return stack.pop()
            elif name not in _NOTHING:
                self._other(name, argument)
        raise ValueError("it has no end")

    def _other(self, name: str, argument: Any) -> None:
        stack = self._stack
        match name:
            case "MARK":
                stack.append(_MARK)
            case "TUPLE":
                stack.append(tuple(self._marked()))
            case "APPEND":
                item = stack.pop()
                _expect(stack[-1], list).append(item)
            case "APPENDS":
                items = self._marked()
                _expect(stack[-1], list).extend(items)
            case "SETITEM":
                value, key = stack.pop(), stack.pop()
                _set_items(stack[-1], [key, value])
            case "SETITEMS":
                items = self._marked()
                _set_items(stack[-1], items)
            case "MEMOIZE":
                self._memo[len(self._memo)] = stack[-1]
            case "GLOBAL":
                stack.append(self._named(argument.replace(" ", ".")))
            case "STACK_GLOBAL":
                last, module = _expect(stack.pop(), str), _expect(stack.pop(), str)
                stack.append(self._named(f"{module}.{last}"))
            case "REDUCE":
                arguments = _expect(stack.pop(), tuple)
                stack.append(self._call(stack.pop(), arguments))
            case "BUILD":
                # An OrderedDict's attributes, which hold versions of modules.
                stack.pop()
                _expect(stack[-1], dict)
            case "BINPERSID":
                stack.append(self._load_id(stack.pop()))
            case _:
                raise CheckpointError(
                    f"{self._source} is refused: its pickle has the opcode {name}, which files of "
                    "plain tensors don't have"
                )

    def _named(self, name: str) -> Any:
        if name in self._calls:
            return _Name(name)
        if name in self._names:
            return self._names[name]
        raise CheckpointError(
            f"{self._source} is refused: its pickle names {name}, and what is no tensor could run "
            "code when it is loaded. Octavo reads files of plain tensors (a state_dict); convert "
            "the model to safetensors where you trust it"
        )

    def _call(self, target: Any, arguments: tuple[Any, ...]) -> Any:
        if not isinstance(target, _Name):
            raise ValueError(f"it calls {type(target).__name__}")
        return self._calls[target](*arguments)

    def _tuple(self, size: int) -> None:
        if len(self._stack) < size:
            raise ValueError("its stack is empty")
        items = tuple(self._stack[-size:])
        del self._stack[-size:]
        self._stack.append(items)

    def _marked(self) -> list[Any]:
        """What lies above the last mark, taken off with it."""
        for index in range(len(self._stack) - 1, -1, -1):
            if self._stack[index] is _MARK:
                items = self._stack[index + 1 :]
                del self._stack[index:]
                return items
        raise ValueError("a mark is missing")


def _set_items(target: Any, items: list[Any]) -> None:
    mapping = _expect(target, dict)
    for key, value in zip(items[::2], items[1::2], strict=True):
        # Others could take forever to hash.
        mapping[_expect(key, (str, int))] = value


def _expect(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"a {type(value).__name__} is where it doesn't belong")
    return value
