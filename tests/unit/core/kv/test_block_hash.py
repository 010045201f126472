from __future__ import annotations

import hashlib
import struct
import subprocess
import sys

import pytest

from octavo.core.kv.block_hash import BlockHasher
from octavo.types.errors import ConfigError
from octavo.types.request import MediaSpan


def hashes_of(tokens, *, algo="sha256", model="m", lora=None, salt=None, size=4, media=()):
    hasher = BlockHasher(algo, model, size)
    hashes: list[bytes] = []
    hasher.extend(hashes, hasher.root(lora, salt), tokens, media)
    return hashes


def test_only_full_blocks_are_hashed():
    assert len(hashes_of(list(range(11)))) == 2
    assert hashes_of([1, 2, 3]) == []


def test_hashing_bit_by_bit_equals_hashing_at_once():
    hasher = BlockHasher("sha256", "m", 4)
    root = hasher.root(None, None)
    tokens: list[int] = []
    hashes: list[bytes] = []
    for token in range(19):
        tokens.append(token)
        hasher.extend(hashes, root, tokens)
    assert hashes == hashes_of(list(range(19)))


def test_a_hash_depends_on_everything_before_it():
    one = hashes_of([1, 2, 3, 4, 5, 6, 7, 8])
    other = hashes_of([9, 2, 3, 4, 5, 6, 7, 8])
    assert one[0] != other[0]
    assert one[1] != other[1]


def test_the_chain_is_the_documented_one():
    hasher = BlockHasher("sha256", "m", 2)
    root = hasher.root(None, None)
    first = hashlib.sha256(root + struct.pack("<2I", 5, 70_000)).digest()
    second = hashlib.sha256(first + struct.pack("<2I", 1, 2)).digest()
    hashes: list[bytes] = []
    hasher.extend(hashes, root, [5, 70_000, 1, 2])
    assert hashes == [first, second]


@pytest.mark.parametrize("algo", ["sha256", "xxhash"])
def test_model_adapter_and_salt_separate(algo):
    tokens = [1, 2, 3, 4]
    variants = [
        hashes_of(tokens, algo=algo),
        hashes_of(tokens, algo=algo, model="n"),
        hashes_of(tokens, algo=algo, lora="a"),
        hashes_of(tokens, algo=algo, salt="a"),
        hashes_of(tokens, algo=algo, lora="a", salt="b"),
        hashes_of(tokens, algo=algo, lora="b", salt="a"),
        hashes_of(tokens, algo=algo, salt=""),
        hashes_of(tokens, algo=algo, lora="ab"),
    ]
    assert len({tuple(hashes) for hashes in variants}) == len(variants)
    assert hashes_of(tokens, algo=algo, salt="a") == hashes_of(tokens, algo=algo, salt="a")


def test_media_separate_from_the_block_they_begin_in():
    tokens = [1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 6, 7, 8, 9, 10, 11]
    plain = hashes_of(tokens)
    variants = [
        hashes_of(tokens, media=media)
        for media in (
            (),
            (MediaSpan(5, 5, "a"),),
            (MediaSpan(5, 5, "b"),),
            (MediaSpan(6, 4, "a"),),
            (MediaSpan(5, 4, "a"),),
            (MediaSpan(5, 3, "a"), MediaSpan(8, 2, "b")),
            (MediaSpan(5, 3, "b"), MediaSpan(8, 2, "a")),
        )
    ]
    assert {hashes[0] for hashes in variants} == {plain[0]}
    for index in (2, 3):
        assert len({hashes[index] for hashes in variants}) == len(variants)
    two = (MediaSpan(5, 3, "a"), MediaSpan(8, 2, "b"))
    assert hashes_of(tokens, media=two[::-1]) == hashes_of(tokens, media=two)


def test_media_are_hashed_bit_by_bit_as_at_once():
    media = (MediaSpan(2, 1, "a"), MediaSpan(3, 6, "b"))
    hasher = BlockHasher("sha256", "m", 4)
    tokens, hashes = list(range(19)), []
    for end in range(1, 20):
        hasher.extend(hashes, hasher.root(None, None), tokens[:end], media)
    assert hashes == hashes_of(tokens, media=media) != hashes_of(tokens)


def test_a_salt_with_a_lone_surrogate_is_hashed():
    assert hashes_of([1, 2, 3, 4], salt="\ud800") != hashes_of([1, 2, 3, 4])


@pytest.mark.parametrize("algo", ["sha256", "xxhash"])
def test_hashes_are_the_same_in_another_process(algo):
    program = (
        "from octavo.core.kv.block_hash import BlockHasher\n"
        f"h = BlockHasher({algo!r}, 'm', 4); out = []\n"
        "h.extend(out, h.root('l', 's'), list(range(8)))\n"
        "print(out[1].hex())"
    )
    environment = {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "12345"}
    there = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True
    )
    here = hashes_of(list(range(8)), algo=algo, lora="l", salt="s")
    assert there.stdout.strip() == here[1].hex()


@pytest.mark.parametrize("token", [-1, 1 << 32])
def test_token_ids_outside_uint32_are_refused(token):
    hasher = BlockHasher("sha256", "m", 4)
    hasher.check([0, (1 << 32) - 1])
    with pytest.raises(OverflowError):
        hasher.check([1, token])


def test_unknown_algorithm_lists_the_choices():
    with pytest.raises(ConfigError, match=r"md5.*sha256.*xxhash"):
        BlockHasher("md5", "m", 4)
