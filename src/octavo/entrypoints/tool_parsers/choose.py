"""Which tool call parser a model needs, told by its chat template and architecture."""

from __future__ import annotations

# Texts that a chat template must all have, and the parser of its model; the first that fits.
_SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("deepseek_v32", ("\uff5cDSML\uff5c",)),
    ("minimax_m2", ("<minimax:tool_call>",)),
    ("seed_oss", ("<seed:tool_call>",)),
    ("kimi_k2", ("<|tool_call_argument_begin|>",)),
    ("kimi_k2", ("<|im_middle|>", "tool_declare")),
    ("glm45", ("<arg_key>",)),
    ("qwen3_coder", ("<function=", "<parameter=")),
    ("functiongemma", ("<start_function_call>",)),
    ("gemma4", ("<|tool_call>call:",)),
    ("longcat", ("<longcat_tool_call>",)),
    ("lfm2", ("<|tool_call_start|>",)),
    ("olmo3", ("<function_calls>",)),
    ("internlm", ("<|action_start|>",)),
    ("deepseek_v3", ("tool\u2581calls\u2581begin", "```json")),
    ("deepseek_v31", ("tool\u2581calls\u2581begin",)),
    ("openai", ("<|channel|>", "to=functions.")),
    ("openai", ("<|channel|>", "functions")),
    ("mistral", ("[TOOL_CALLS]",)),
    ("llama4_pythonic", ("<|python_start|>",)),
    ("phi4_mini_json", ("functools[",)),
    ("phi4_mini_json", ("<|/tool_call|>",)),
    ("granite", ("<|tool_call|>",)),
    ("granite-20b-fc", ("<function_call>",)),
    ("jamba", ("<tool_calls>",)),
    ("llama3_json", ("<|python_tag|>",)),
    ("llama3_json", ("<|start_header_id|>", '"parameters":')),
    ("hermes", ("<tool_call>",)),
)
_ARCHITECTURES = {"GptOssForCausalLM": "openai"}


def infer_tool_parser(template: str, architecture: str) -> str | None:
    """The name of the parser; None for a model that was not taught to call tools, or unknown."""
    if architecture in _ARCHITECTURES:
        return _ARCHITECTURES[architecture]
    for name, signs in _SIGNS:
        if all(sign in template for sign in signs):
            return name
    return None
