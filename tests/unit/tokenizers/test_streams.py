"""Streams give, joined, what the tokenizer decodes at once, and give it early."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from octavo.tokenizers.streams import MAX_HELD_TOKENS, open_stream
from octavo.tokenizers.tokenizer import Tokenizer
from support.tiny_tokenizer import SPECIALS, byte_fallback, byte_level

TEXTS = [
    "👩‍👩‍👧‍👦 family",
    "é e\u0301 ñ",
    "你好 世界",
    "สวัสดีชาวโลก",
    "a\ufffdb",
    "\x00\x7f\u0800",
    "",
]


def stream_text(tokenizer, ids, prompt=(), skip=True):
    stream = open_stream(tokenizer, prompt, skip)
    return "".join([stream.feed(token_id) for token_id in ids] + [stream.flush()])


def byte_ids(tokenizer, data):
    if tokenizer is byte_fallback():
        return [tokenizer.backend.token_to_id(f"<0x{byte:02X}>") for byte in data]
    letters = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size)}
    return [letters[bytes([byte])] for byte in data]


@pytest.mark.parametrize("tokenizer", [byte_level(), byte_fallback()], ids=["level", "fallback"])
@pytest.mark.parametrize("text", TEXTS)
def test_texts_one_token_at_a_time(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert stream_text(tokenizer, ids) == tokenizer.decode(ids)
    ids = byte_ids(tokenizer, text.encode())
    stream = open_stream(tokenizer, [], True)
    pieces = [stream.feed(token_id) for token_id in ids] + [stream.flush()]
    assert "".join(pieces) == tokenizer.decode(ids)
    assert "\ufffd" not in "".join(pieces) or "\ufffd" in text


@given(st.lists(st.integers(0, byte_level().vocab_size + 3), max_size=30), st.booleans())
def test_byte_level_equals_decode_for_any_ids(ids, skip):
    tokenizer = byte_level()
    assert stream_text(tokenizer, ids, skip=skip) == tokenizer.decode(ids, skip)


@given(st.lists(st.integers(0, byte_fallback().vocab_size + 3), max_size=30), st.booleans())
def test_byte_fallback_equals_decode_for_any_ids(ids, skip):
    tokenizer = byte_fallback()
    run = longest = 0
    for token_id in ids:
        if token_id in tokenizer.byte_token_ids:
            run += 1
        elif tokenizer.token_bytes(token_id) and not (
            skip and token_id in tokenizer.all_special_ids
        ):
            run = 0  # tokens without text, and those left out, end no run
        longest = max(longest, run)
    if longest <= MAX_HELD_TOKENS:
        assert stream_text(tokenizer, ids, skip=skip) == tokenizer.decode(ids, skip)


@given(st.text(max_size=40), st.data())
def test_any_text_after_any_prompt(text, data):
    """What follows a prompt that is cut anywhere, even inside a character."""
    for tokenizer in (byte_level(), byte_fallback()):
        ids = tokenizer.encode(text, add_special_tokens=False)
        cut = data.draw(st.integers(0, len(ids)))
        pieces = [tokenizer.token_bytes(token_id) for token_id in ids]
        whole = b"".join(pieces).decode()
        prompt = b"".join(pieces[:cut]).decode(errors="ignore")
        begins_text = tokenizer.strips_leading_space and not cut
        expected = whole.removeprefix(" ") if begins_text else whole[len(prompt) :]
        assert stream_text(tokenizer, ids[cut:], ids[:cut]) == expected


@pytest.mark.parametrize("tokenizer", [byte_level(), byte_fallback()], ids=["level", "fallback"])
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("cut", [1, 2])
def test_special_token_inside_a_character(tokenizer, skip, cut):
    data = byte_ids(tokenizer, "世".encode())
    ids = [*data[:cut], tokenizer.eos_token_id, *data[cut:]]
    assert stream_text(tokenizer, ids, skip=skip) == tokenizer.decode(ids, skip)


def test_prompt_that_ends_inside_a_character():
    tokenizer = byte_level()
    first, *rest = byte_ids(tokenizer, "世".encode())
    assert stream_text(tokenizer, rest, [first]) == "世"
    (letter,) = byte_ids(tokenizer, b"x")
    assert stream_text(tokenizer, [letter], [first]) == "x"
    assert stream_text(tokenizer, [], [first]) == ""
    assert stream_text(tokenizer, rest, [first, tokenizer.eos_token_id]) == "\ufffd\ufffd"


def test_fallback_run_is_attributed_to_its_tokens():
    tokenizer = byte_fallback()
    letter = tokenizer.backend.token_to_id("a")
    stream = open_stream(tokenizer, [letter], True)
    for count, token_id in enumerate(byte_ids(tokenizer, "\né".encode()), 1):
        assert stream.feed(token_id) == ""
        assert stream.num_held == count
    assert stream.feed(letter) == "\néa"
    assert stream.num_held == 0
    assert [stream.lag(characters) for characters in (1, 2, 3)] == [3, 1, 0]


def test_long_fallback_run_flows():
    """A script the vocabulary lacks is not held to the end."""
    tokenizer = byte_fallback()
    text = "မြန်မာဘာသာစကား"
    stream = open_stream(tokenizer, [], True)
    pieces = [stream.feed(token_id) for token_id in byte_ids(tokenizer, text.encode())]
    assert "".join(pieces) == text
    assert len([piece for piece in pieces if piece]) > len(text) // 2
    assert stream.flush() == ""


def test_leading_space_is_dropped_only_at_the_start_of_all_text():
    tokenizer = byte_fallback()
    ids = tokenizer.encode("the a", add_special_tokens=False)
    assert stream_text(tokenizer, ids) == "the a"
    assert stream_text(tokenizer, ids, [tokenizer.bos_token_id]) == "the a"
    assert stream_text(tokenizer, ids, ids) == " the a"


def word_tokenizer(decoder):
    vocab = {"<unk>": 0, "play": 1, "##ing": 2, "ball": 3, ".": 4, "▁go": 5, "▁on": 6, "�": 7}
    backend = Backend(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoder
    return Tokenizer(backend)


@pytest.mark.parametrize("decoder", [decoders.WordPiece(), decoders.Metaspace()])
@given(ids=st.lists(st.integers(0, 7), min_size=1, max_size=12))
def test_other_decoders_by_window(decoder, ids):
    tokenizer = word_tokenizer(decoder)
    assert stream_text(tokenizer, ids) == tokenizer.decode(ids)


def test_window_holds_replacement_characters_for_a_while_only():
    tokenizer = word_tokenizer(decoders.Fuse())
    stream = open_stream(tokenizer, [], True)
    pieces = [stream.feed(7) for _ in range(MAX_HELD_TOKENS + 1)]
    assert pieces[:-1] == [""] * MAX_HELD_TOKENS
    assert pieces[-1] == "\ufffd" * (MAX_HELD_TOKENS + 1)


def test_specials_are_visible_on_request():
    tokenizer = byte_level()
    assert stream_text(tokenizer, range(len(SPECIALS)), skip=False) == "".join(SPECIALS)
    assert stream_text(tokenizer, range(len(SPECIALS))) == ""
