"""Tokenizers of text encoders in GGUF files encode as those they were made from."""

import gguf
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from octavo.checkpoints.gguf_file import GGUFFile
from octavo.checkpoints.gguf_tokenizer import tokenizer_json
from octavo.checkpoints.locate import find_model
from octavo.checkpoints.sentence_transformers import sentence_files
from octavo.checkpoints.tensors import MappedFiles
from octavo.tokenizers.tokenizer import load_tokenizer
from octavo.types.errors import CheckpointError
from support.tiny_encoder_gguf import PIECES, word_piece
from support.tiny_gguf import write_gguf

TEXTS = [
    "The unaffable, running caf\u00e9!",
    "THE a.b-c \u4e2d\u6587 zzz",
    "[MASK] un[SEP]able",
    "  a \t b\u0000 ",
    "",
    "c" * 101,
    "unaffableb [unused1]",
]
CONTROL = PIECES[:5]


def marked(pieces):
    return [
        piece if piece in CONTROL else piece[2:] if piece.startswith("##") else "\u2581" + piece
        for piece in pieces
    ]


def write(path, pieces, kind="bert", types=None, **metadata):
    """The tokenizer's part of a file."""
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_tokenizer_model(kind)
    writer.add_token_list(pieces)
    writer.add_token_types(types or [3 if piece in CONTROL else 1 for piece in pieces])
    for key, value in metadata.items():
        if key.startswith("normalizer_"):  # later than the gguf package
            writer.add_bool(key.replace("normalizer_", "tokenizer.ggml.normalizer."), value)
        else:
            getattr(writer, f"add_{key}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GGUFFile(path, MappedFiles())


def equal(ours, theirs, texts=TEXTS):
    for text in texts:
        assert ours.encode(text).ids == theirs.encode(text).ids, text
        assert ours.encode(text).tokens == theirs.encode(text).tokens, text
    ours, theirs = ours.encode(*texts[:2]), theirs.encode(*texts[:2])
    assert (ours.ids, ours.type_ids) == (theirs.ids, theirs.type_ids)


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("lower", [False, True])
def test_word_piece(told, lower, tmp_path):
    """Whether case counts is told by the file, or by the vocabulary's capitals."""
    pieces = PIECES if lower or told else [*PIECES, "THE", "The"]
    metadata = {"normalizer_lowercase": lower} if told else {}
    file = write(tmp_path / "m.gguf", marked(pieces), **metadata)
    equal(Tokenizer.from_str(tokenizer_json(file)), word_piece(pieces, lower=lower))


def test_accents_by_the_file(tmp_path):
    file = write(
        tmp_path / "m.gguf",
        marked([*PIECES, "caf\u00e9"]),
        normalizer_lowercase=True,
        normalizer_strip_accents=False,
    )
    ours = Tokenizer.from_str(tokenizer_json(file))
    assert ours.encode("Caf\u00e9").ids == [2, len(PIECES), 3]


@pytest.mark.parametrize("charsmap", [False, True])
def test_unigram(charsmap, tmp_path):
    """XLM-RoBERTa's."""
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = {"\u2581": -2.0, "\u2581the": -3.0, "cat": -3.5, "s": -4.0, "a": -4.5, "t": -5.0}
    pieces |= {"\u2581ca": -5.0, "<mask>": 0.0}
    vocab = [*((token, 0.0) for token in specials), *pieces.items()]
    theirs = Tokenizer(models.Unigram(vocab, 3, False))
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="always")
    theirs.pre_tokenizer, theirs.decoder = metaspace, decoders.Metaspace()
    theirs.add_special_tokens([*specials, "<mask>"])
    theirs.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    metadata = {"precompiled_charsmap": bytes(20)} if charsmap else {}
    types = [3, 3, 3, 2, *[1] * 7, 3]
    file = write(
        tmp_path / "m.gguf",
        [token for token, _ in vocab],
        "t5",
        types,
        token_scores=[score for _, score in vocab],
        unk_token_id=3,
        eos_token_id=2,
        bos_token_id=0,
        **metadata,
    )
    if charsmap:
        assert '"Precompiled"' in tokenizer_json(file)
        return
    ours = Tokenizer.from_str(tokenizer_json(file))
    equal(ours, theirs, ["the cats", "cat a", "the dog<mask>", ""])
    assert ours.encode("  the   cats ").ids == theirs.encode("the cats").ids


def test_faults(tmp_path):
    with pytest.raises(CheckpointError, match="does not say which token is put around"):
        tokenizer_json(write(tmp_path / "m.gguf", ["a", "b"]))
    with pytest.raises(CheckpointError, match="2 tokens and 0 scores"):
        tokenizer_json(write(tmp_path / "u.gguf", ["<s>", "</s>"], "t5"))


@pytest.mark.parametrize(
    ("value", "mode"), [(None, None), (0, None), (1, "mean"), (2, "cls"), (3, "lasttoken")]
)
def test_pooling_of_the_metadata(value, mode, tmp_path):
    """A generator that says how it pools is one of embeddings."""
    path = write_gguf(tmp_path / "m.gguf", "qwen3", metadata={"qwen3.pooling_type": value})
    found = sentence_files(find_model(str(path)))
    if mode is None:
        assert found is None
        return
    assert [module.kind for module in found.modules] == ["Transformer", "Pooling", "Normalize"]
    assert found.modules[1].config == {"pooling_mode": mode}


def test_the_ends_stay_where_the_file_puts_them(tmp_path):
    """add_bos_token, which other architectures have, takes nothing away."""
    path = tmp_path / "m.gguf"
    write(path, marked(PIECES), bos_token_id=2, sep_token_id=3, add_bos_token=False)
    tokenizer = load_tokenizer(find_model(str(path)))
    assert tokenizer.encode("a") == [2, PIECES.index("a"), 3]
    assert tokenizer.affixes == ([2], [3])
