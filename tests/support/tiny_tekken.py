"""A small tekken.json."""

from __future__ import annotations

import base64
import itertools
import json
from pathlib import Path

import tokenizers

TEXT = [
    "the quick brown fox jumps over the lazy dog, then the dog sleeps",
    "I'll say it's 12345 times; naïve café — 你好, 世界!\n\n  indented",
    "Hello there, the thing that they then thought through",
]
PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def tokens(num_merges: int = 100) -> list[bytes]:
    """256 bytes, then the merges that the texts above give."""
    vocabulary = [bytes([byte]) for byte in range(256)]
    words = [
        [bytes([byte]) for byte in piece.encode()]
        for text in TEXT
        for piece, _ in tokenizers.pre_tokenizers.Split(
            tokenizers.Regex(PATTERN), "isolated"
        ).pre_tokenize_str(text)
    ]
    for _ in range(num_merges):
        counts: dict[tuple[bytes, bytes], int] = {}
        for word in words:
            for pair in itertools.pairwise(word):
                counts[pair] = counts.get(pair, 0) + 1
        best = max(counts, key=lambda pair: (counts[pair], pair))
        if best[0] + best[1] in vocabulary:
            break
        vocabulary.append(best[0] + best[1])
        words = [merged(word, best) for word in words]
    return vocabulary


def merged(word: list[bytes], pair: tuple[bytes, bytes]) -> list[bytes]:
    """The word with every occurrence of a pair made one."""
    result: list[bytes] = []
    for part in word:
        if result and (result[-1], part) == pair:
            result[-1] += part
        else:
            result.append(part)
    return result


def encode(text: str, vocabulary: list[bytes], num_special: int) -> list[int]:
    """Token ids by the definition: the pair whose union has the lowest rank is merged first."""
    ranks = {token: rank for rank, token in enumerate(vocabulary)}
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(PATTERN), "isolated")
    ids = []
    for piece, _ in split.pre_tokenize_str(text):
        word = [bytes([byte]) for byte in piece.encode()]
        if piece.encode() in ranks:
            word = [piece.encode()]
        while True:
            pairs = [
                (ranks[left + right], (left, right))
                for left, right in itertools.pairwise(word)
                if left + right in ranks
            ]
            if not pairs:
                break
            word = merged(word, min(pairs)[1])
        ids += [num_special + ranks[token] for token in word]
    return ids


def write_tekken(
    path: Path, version: str = "v7", num_special: int = 24, listed: bool = False
) -> list[bytes]:
    """Write it; returns the vocabulary. The file holds more tokens than the model's vocabulary."""
    vocabulary = tokens()
    content = {
        "config": {
            "pattern": PATTERN,
            "num_vocab_tokens": len(vocabulary) + 1,
            "default_vocab_size": num_special + len(vocabulary),
            "default_num_special_tokens": num_special,
            "version": version,
        },
        "vocab": [
            {
                "rank": rank,
                "token_bytes": base64.b64encode(token).decode(),
                "token_str": token.decode(errors="replace"),
            }
            for rank, token in enumerate([*vocabulary, b"beyond"])
        ],
    }
    if listed:
        names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[THINK]"]
        content["special_tokens"] = [
            {"rank": rank, "token_str": name, "is_control": True} for rank, name in enumerate(names)
        ]
    path.write_text(json.dumps(content))
    return vocabulary
