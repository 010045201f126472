"""Which reasoning parser a model gets."""

import pytest

from octavo.entrypoints.reasoning.choose import infer_reasoning_parser
from octavo.entrypoints.reasoning.interface import REASONING_PARSERS


@pytest.mark.parametrize(
    ("template", "architecture", "name"),
    [
        ("", "GptOssForCausalLM", "openai_gptoss"),
        ("<|im_start|>assistant<think>\n\n</think>", "X", "qwen3"),
        ("<seed:think>", "X", "seed_oss"),
        ("[THINK]", "X", "mistral"),
        ("Here is my thought process:", "X", "granite"),
        ("[gMASK]<sop><think></think>", "X", "glm45"),
        ("<think>a</think>", "X", "deepseek_r1"),
        ("plain", "X", None),
    ],
)
def test_signs(template, architecture, name):
    assert infer_reasoning_parser(template, architecture) == name
    assert name is None or name in REASONING_PARSERS
