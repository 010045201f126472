"""ToolParser: how one family of models writes tool calls; TOOL_PARSERS, the table of them."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from octavo.entrypoints.tool_parsers.answer_writer import AnswerWriter, openai_id
from octavo.entrypoints.tool_parsers.marks import Marks, is_mark
from octavo.entrypoints.tool_parsers.source import Source, Steps
from octavo.entrypoints.tool_parsers.structural_tags import CallShape, ToolChoice
from octavo.entrypoints.tool_parsers.tools import Tools
from octavo.types.errors import ConfigError
from octavo.utils.registry import Registry

_FAMILIES = "octavo.entrypoints.tool_parsers.families"


class ToolParser(ABC):
    """One syntax of tool calls, made once per server. It keeps nothing of any answer.

    `opens` are the texts, after Marks, that begin calls anywhere in the content. `leads` are the
    characters that begin a call without any mark, where content begins or a call has just ended
    (then also after one of `separators`). `closers` maps an opening to the texts that end what it
    began; they are read over wherever they follow. `shape` says how grammars spell a call.
    """

    opens: tuple[str, ...] = ()
    leads: str = ""
    separators: str = ""
    closers: Mapping[str, tuple[str, ...]] = {}
    shape: CallShape | None = None

    @abstractmethod
    def read_call(
        self, source: Source, writer: AnswerWriter, opened: str, tools: Tools
    ) -> Steps[None]:
        """Read one call, or several where one opening begins several.

        `opened` was read before; "" if a character of `leads` comes next. Whatever is not claimed
        when it returns is given back as text, so nothing may be written to `writer` before it is
        certain that this is a call.
        """

    @functools.cached_property
    def token_opens(self) -> tuple[str, ...]:
        """Those of `opens` that are told by special tokens, and so can't be text."""
        return tuple(mark for mark in self.opens if any(map(is_mark, mark)))

    def new_id(self, name: str, number: int) -> str:
        """The id of an answer's call to `name`, where the model writes none."""
        return openai_id(name, number)

    def structural_tag(
        self, tools: Tools, choice: ToolChoice, parallel: bool
    ) -> dict[str, Any] | None:
        """What an answer looks like whose calls are as the request wants them.

        None where `shape` is None: then forced_calls_schema is the form to hold the model to.
        """
        return None if self.shape is None else self.shape.tag(tools, choice, parallel)

    def history_id(self, call_id: str, name: str, number: int) -> str:
        """How the id of a call in the conversation reads in the prompt.

        `number` counts the conversation's calls from 0.
        """
        del name, number
        return call_id


ToolParserFactory = Callable[[Marks], ToolParser]

TOOL_PARSERS: Registry[ToolParserFactory] = Registry(
    "tool call parser",
    {
        name: f"{_FAMILIES}:{entry}"
        for name, entry in {
            "deepseek_v3": "DEEPSEEK_V3",
            "deepseek_v31": "DEEPSEEK_V31",
            "deepseek_v32": "DEEPSEEK_V32",
            "ernie45": "HERMES",
            "functiongemma": "FUNCTIONGEMMA",
            "gemma4": "GEMMA4",
            "glm45": "GLM",
            "glm47": "GLM",
            "granite": "GRANITE",
            "granite-20b-fc": "GRANITE_20B",
            "granite4": "HERMES",
            "hermes": "HERMES",
            "hunyuan_a13b": "HUNYUAN",
            "internlm": "INTERNLM",
            "jamba": "JAMBA",
            "kimi_k2": "KIMI_K2",
            "lfm2": "LFM2",
            "llama3_json": "LLAMA3_JSON",
            "llama4_json": "LLAMA3_JSON",
            "llama4_pythonic": "LLAMA4_PYTHONIC",
            "longcat": "LONGCAT",
            "minimax_m2": "MINIMAX_M2",
            "mistral": "MISTRAL",
            "olmo3": "OLMO3",
            "openai": "OPENAI",
            "phi4_mini_json": "PHI4",
            "pythonic": "PYTHONIC",
            "qwen3_coder": "QWEN3_CODER",
            "qwen3_xml": "QWEN3_CODER",
            "seed_oss": "SEED_OSS",
            "xlam": "XLAM",
        }.items()
    },
)


def load_plugin(file: str) -> None:
    """Run a Python file that registers parsers, once per process. Raises ConfigError."""
    path = Path(file)
    name = (
        f"octavo_plugin_{hashlib.blake2b(str(path.resolve()).encode(), digest_size=8).hexdigest()}"
    )
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(f"the parser plug-in {file!r} is no Python file; give the path of one")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    # A plug-in's own code may raise anything.
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(
            f"the parser plug-in {file!r} can't be loaded ({type(error).__name__}: {error}); it "
            "must register its parsers when it is imported"
        ) from error
