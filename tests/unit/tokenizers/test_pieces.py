"""Bytes of vocabulary entries."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from octavo.tokenizers.pieces import DecoderKind, decoder_kind, token_to_bytes


def backend_with(decoder):
    backend = Tokenizer(models.BPE())
    if decoder is not None:
        backend.decoder = decoder
    return backend


FALLBACK = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
STRIP = decoders.Strip(" ", 1, 0)


@pytest.mark.parametrize(
    ("decoder", "kind", "strips"),
    [
        (None, DecoderKind.OTHER, False),
        (decoders.ByteLevel(), DecoderKind.BYTE_LEVEL, False),
        (decoders.Sequence(FALLBACK), DecoderKind.BYTE_FALLBACK, False),
        (
            decoders.Sequence([*FALLBACK, decoders.Strip(" ", 1, 0)]),
            DecoderKind.BYTE_FALLBACK,
            True,
        ),
        (decoders.Sequence([*FALLBACK, decoders.Strip("x", 1, 0)]), DecoderKind.OTHER, False),
        (decoders.Sequence(FALLBACK[1:]), DecoderKind.OTHER, False),
        (decoders.Metaspace(), DecoderKind.OTHER, False),
    ],
)
def test_kinds(decoder, kind, strips):
    assert decoder_kind(backend_with(decoder)) == (kind, strips)


def test_byte_letters_are_those_of_the_package():
    pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for text in ("\x00 \n~", "¡¬\xad®ÿ", "你\U0001f469"):
        ((letters, _),) = pre_tokenizer.pre_tokenize_str(text)
        assert token_to_bytes(letters, DecoderKind.BYTE_LEVEL) == text.encode()
    assert len(pre_tokenizers.ByteLevel.alphabet()) == 256
    data = b"".join(
        token_to_bytes(letter, DecoderKind.BYTE_LEVEL)
        for letter in pre_tokenizers.ByteLevel.alphabet()
    )
    assert sorted(data) == list(range(256))


@pytest.mark.parametrize(
    ("token", "kind", "data"),
    [
        ("Ġhi", DecoderKind.BYTE_LEVEL, b" hi"),
        ("<|im end|>", DecoderKind.BYTE_LEVEL, b"<|im end|>"),  # never byte-encoded: has a space
        ("<0xE4>", DecoderKind.BYTE_FALLBACK, b"\xe4"),
        ("<0xE4>", DecoderKind.BYTE_LEVEL, b"<0xE4>"),
        ("▁hi", DecoderKind.BYTE_FALLBACK, b" hi"),
        ("▁hi", DecoderKind.OTHER, b" hi"),
    ],
)
def test_tokens(token, kind, data):
    assert token_to_bytes(token, kind) == data
