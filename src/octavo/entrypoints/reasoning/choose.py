"""Which reasoning parser a model needs, told by its chat template and architecture."""

from __future__ import annotations

# Texts of a chat template, and the parser of models that have one of them; the first that fits.
_SIGNS = (
    ("openai_gptoss", ("<|channel|>analysis", "<|channel|>final")),
    ("seed_oss", ("<seed:think>",)),
    ("minimax_m3", ("<mm:think>",)),
    ("gemma4", ("<|channel>thought", "<channel|>")),
    ("mistral", ("[THINK]",)),
    ("granite", ("Here is my thought process",)),
)
_FAMILIES = (
    ("minimax_m2", ("<minimax:tool_call>",)),
    ("kimi_k2", ("<|im_middle|>",)),
    ("glm45", ("[gMASK]", "<|observation|>")),
    ("nemotron", ("detailed thinking",)),
    ("qwen3", ("<|im_start|>",)),
)
_ARCHITECTURES = {"GptOssForCausalLM": "openai_gptoss"}


def infer_reasoning_parser(template: str, architecture: str) -> str | None:
    """The name of the parser; None for a model that does not reason."""
    if architecture in _ARCHITECTURES:
        return _ARCHITECTURES[architecture]
    for name, signs in _SIGNS:
        if any(sign in template for sign in signs):
            return name
    if "</think>" not in template:
        return None
    for name, signs in _FAMILIES:
        if any(sign in template for sign in signs):
            return name
    return "deepseek_r1"
