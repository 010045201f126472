"""Pre-tokenizer rules that GGUF files name in tokenizer.ggml.pre, as tokenizer.json parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# The splitting expressions are the ones of each family's published tokenizer.json.
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_QWEN2 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_QWEN35 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_CASED_TAIL = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
_TEKKEN = rf"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*|\p{{N}}|{_CASED_TAIL}"
_GPT4O = (
    rf"{_LEAD}{_UPPER}*{_LOWER}+{_CONTRACTION}?|{_LEAD}{_UPPER}+{_LOWER}*{_CONTRACTION}?"
    rf"|\p{{N}}{{1,3}}|{_CASED_TAIL}"
)
_DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
_BLOOM = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{0964}\x{06d4}\x{060c})]+"
_CJK = r"[\x{4e00}-\x{9fa5}\x{0800}-\x{4e00}\x{ac00}-\x{d7ff}]+"
_HAN_KANA = r"[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+"


@dataclass(frozen=True)
class PreTokenizer:
    """How text is cut before byte-pair merging.

    `splits` are applied in turn, each match isolated; `gpt2` adds GPT-2's own expression.
    `ignore_merges`: a cut piece that is a token is taken whole. `nfc`: Unicode NFC first.
    """

    splits: tuple[str, ...] = ()
    gpt2: bool = False
    ignore_merges: bool = False
    nfc: bool = False

    def to_json(self) -> dict[str, Any]:
        """The "pre_tokenizer" of a tokenizer.json."""
        steps: list[dict[str, Any]] = [
            {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False}
            for split in self.splits
        ]
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
        steps.append(byte_level | {"use_regex": self.gpt2})
        return {"type": "Sequence", "pretokenizers": steps}


_FAMILIES: tuple[tuple[PreTokenizer, tuple[str, ...]], ...] = (
    (
        PreTokenizer(gpt2=True),
        ("default", "gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4"),
    ),
    (
        PreTokenizer((r"\p{N}",), gpt2=True),
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
    ),
    (
        PreTokenizer((_LLAMA3,), ignore_merges=True),
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "lfm2", "midm-2.0"),
    ),
    (PreTokenizer((_LLAMA3,)), ("dbrx", "smaug-bpe", "glm4", "chatglm-bpe")),
    (PreTokenizer((_QWEN2,), nfc=True), ("qwen2",)),
    (PreTokenizer((_QWEN2,)), ("deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan")),
    (PreTokenizer((_QWEN35,), nfc=True), ("qwen35",)),
    (PreTokenizer((_TEKKEN,), ignore_merges=True), ("tekken", "pixtral")),
    (PreTokenizer((_GPT4O,)), ("gpt-4o", "llama4")),
    (
        PreTokenizer((r"\p{N}{1,3}", _HAN_KANA, _DEEPSEEK_V3)),
        ("deepseek-v3", "hunyuan-dense", "joyai-llm"),
    ),
    (PreTokenizer((_BLOOM,)), ("bloom", "gpt3-finnish")),
    (
        PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
        ("deepseek-coder",),
    ),
)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    name: rule for rule, names in _FAMILIES for name in names
}
