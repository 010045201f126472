"""Small tokenizers of the two kinds that matter: byte-level BPE and byte-fallback BPE."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers

from octavo.tokenizers.tokenizer import Tokenizer

SPECIALS = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content "
    "+ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}"
)
CONFIG = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "chat_template": CHAT_TEMPLATE,
}
_CORPUS = [
    "the quick brown fox jumps over the lazy dog and the other foxes jump too",
    "Count: one two three four five six seven eight nine ten 0 1 2 3 4 5 6 7 8 9",
    "hello world, hello there; stop here. STOP here! the end of the story",
    "der schnelle braune Fuchs springt über den faulen Hund, là où ça été",
    "你好世界 世界你好 สวัสดีชาวโลก 👩‍👩‍👧 👩‍👧",
]


def byte_level_backend(vocab_size: int = 400) -> tokenizers.Tokenizer:
    """Byte-level BPE with GPT-2's splitting; ids 0-4 are SPECIALS."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(token, special=True) for token in SPECIALS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(_CORPUS, trainer)
    return backend


def byte_fallback_backend() -> tokenizers.Tokenizer:
    """Llama-2-like BPE: "▁" for spaces, <0x00>..<0xFF> for what the vocabulary lacks."""
    pieces = [*SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", *"abcdefghijklmnopqrstuvwxyz", "é", "你", "he", "th", "the", "▁the", "▁a"]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    merges = [("h", "e"), ("t", "h"), ("t", "he"), ("th", "e"), ("▁", "the"), ("▁", "a")]
    backend = tokenizers.Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens([AddedToken(token, special=True) for token in SPECIALS])
    return backend


@functools.cache
def byte_level() -> Tokenizer:
    """An octavo Tokenizer of byte_level_backend()."""
    return Tokenizer(byte_level_backend(), dict(CONFIG), {"default": CHAT_TEMPLATE})


@functools.cache
def byte_fallback() -> Tokenizer:
    """An octavo Tokenizer of byte_fallback_backend()."""
    return Tokenizer(byte_fallback_backend(), dict(CONFIG), {"default": CHAT_TEMPLATE})


def save_tokenizer(folder: Path, backend: tokenizers.Tokenizer | None = None) -> None:
    """Write tokenizer.json and tokenizer_config.json into a model folder."""
    (backend or byte_level_backend()).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
