"""Text that clients carry back unread."""

import pytest

from octavo.entrypoints.openai.opaque_text import pack, signature, unpack


@pytest.mark.parametrize("text", ["", "a", "Größe 東京 👨‍👩‍👧\n", "x" * 10_000])
def test_what_is_packed_is_unpacked(text):
    word = pack(text)
    assert word.isascii()
    assert " " not in word
    assert unpack(word) == text


@pytest.mark.parametrize("value", [None, 3, "", "abc", "octavo1.%", "octavo1._w==", "octavo1.ü"])
def test_other_values_hold_nothing(value):
    assert unpack(value) is None


def test_signatures_tell_texts_apart():
    assert signature("a") == signature("a") != signature("b")
