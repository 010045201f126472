"""The families of models and how they mark reasoning: one entry each."""

from __future__ import annotations

from octavo.entrypoints.reasoning.interface import ReasoningSyntax

THINK = ReasoningSyntax()
GEMMA4 = ReasoningSyntax(("<|channel>thought\n",), ("<channel|>",))
GRANITE = ReasoningSyntax(
    ("Here is my thought process:", "Here's my thought process:"),
    ("Here is my response:", "Here's my response:"),
)
HARMONY = ReasoningSyntax(("<|channel|>analysis<|message|>",), ("<|end|>",), harmony=True)
MINIMAX_M3 = ReasoningSyntax(("<mm:think>",), ("</mm:think>",))
MISTRAL = ReasoningSyntax(("[THINK]", "<think>"), ("[/THINK]", "</think>"))
SEED_OSS = ReasoningSyntax(("<seed:think>",), ("</seed:think>",))
