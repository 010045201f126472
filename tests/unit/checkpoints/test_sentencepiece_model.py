"""SentencePiece models become tokenizers with the same ids, and Mistral's have its templates."""

import importlib.util
import io
import shutil
from pathlib import Path

import pytest

from octavo.checkpoints import sentencepiece_model
from octavo.checkpoints.locate import find_model
from octavo.entrypoints.chat_template import ChatTemplate
from octavo.tokenizers.tokenizer import load_tokenizer
from octavo.types.errors import CheckpointError, RequestError

TEXTS = [
    "the quick brown fox jumps over the lazy dog",
    "  two  blanks, then\nlines\t and \u4f60\u597d \U0001f600 ",
    "na\u00efve caf\u00e9 12345 <mark> it's",
    "",
    " ",
    "zq" * 40,
]
TRAINED_ON = [
    "the quick brown fox jumps over the lazy dog then the dog sleeps",
    "it's 12345 times, the thing that they then thought through",
] * 4


def trained(folder: Path, name="tokenizer.model", **options) -> Path:
    sentencepiece = pytest.importorskip("sentencepiece")
    written = io.BytesIO()
    values = {
        "model_type": "bpe",
        "vocab_size": 330,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "user_defined_symbols": ["<mark>"],
        "split_digits": True,
        "minloglevel": 2,
        "hard_vocab_limit": False,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINED_ON), model_writer=written, **{**values, **options}
    )
    path = folder / name
    path.write_bytes(written.getvalue())
    (folder / "config.json").write_text("{}")
    return path


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"add_dummy_prefix": False},
        {"normalization_rule_name": "nfkc"},
        {"byte_fallback": False, "vocab_size": 60},
        {"pad_id": 3, "user_defined_symbols": []},
    ],
)
def test_ids(options, tmp_path):
    """As the sentencepiece package's, with the begin token before them."""
    sentencepiece = pytest.importorskip("sentencepiece")
    path = trained(tmp_path, **options)
    theirs = sentencepiece.SentencePieceProcessor(str(path))
    tokenizer = load_tokenizer(find_model(str(tmp_path)))
    for text in TEXTS:
        if not options.get("user_defined_symbols", True):
            text = text.replace("<mark>", "")
        if "<mark>" in text and options.get("add_dummy_prefix", True):
            continue  # text behind a symbol begins with a space here, as with transformers
        expected = theirs.encode(text)
        if text.strip() or not options:
            assert tokenizer.encode(text) == [1, *expected], text
            if options.get("byte_fallback", True):  # else what is unknown is written as a mark
                assert tokenizer.decode(expected) == theirs.decode(expected), text
    assert tokenizer.max_token_id == theirs.get_piece_size() - 1
    assert tokenizer.eos_token_id == theirs.eos_id()
    assert tokenizer.convert_tokens_to_ids(["<unk>"]) == [theirs.unk_id()]


def test_which_file(tmp_path):
    """The latest version of Mistral's goes before the plain name, tokenizer.json before both."""
    assert sentencepiece_model.find(tmp_path) is None
    for name in ("tokenizer.model", "tokenizer.model.v3", "tokenizer.model.v7m1"):
        (tmp_path / name).write_bytes(b"")
    assert sentencepiece_model.find(tmp_path).name == "tokenizer.model.v7m1"
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    files = find_model(str(tmp_path))
    assert (files.tokenizer_json(), files.tokenizer_config()) == ("{}", {})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: b"", "no pieces"),
        (lambda data: data[:-1], "ends within"),
        (lambda data: b"\x07\x00" + data, "is no SentencePiece model"),
        (lambda data: b"PK\x03\x04" + data, "is no SentencePiece model"),
        (lambda data: b"\xff" * 12, "too long"),
    ],
)
def test_files_that_are_none(change, words, tmp_path):
    path = trained(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CheckpointError, match=words):
        find_model(str(tmp_path)).tokenizer_json()


def test_a_unigram_model_is_refused(tmp_path):
    trained(tmp_path, model_type="unigram", vocab_size=60, byte_fallback=False)
    with pytest.raises(CheckpointError, match=r"is no BPE; make a tokenizer\.json"):
        find_model(str(tmp_path)).tokenizer_json()


SYSTEM = {"role": "system", "content": "Be brief."}
TALK = [
    {"role": "user", "content": "Hello there"},
    {"role": "assistant", "content": "General Kenobi!"},
    {"role": "user", "content": "who's \u4f60\u597d?\n\n  x"},
]
FUNCTION = {
    "name": "look",
    "description": "What is there",
    "parameters": {"type": "object", "properties": {"where": {"type": "string"}}},
}
TOOLS = [{"type": "function", "function": FUNCTION}]
CALLS = [
    *TALK,
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "abcdefgh1",
                "type": "function",
                "function": {"name": "look", "arguments": '{"where": "caf\u00e9"}'},
            }
        ],
    },
    {"role": "tool", "content": "nothing", "tool_call_id": "abcdefgh1", "name": "look"},
]
FILES = {
    1: "tokenizer.model.v1",
    2: "mistral_instruct_tokenizer_240216.model.v2",
    3: "mistral_instruct_tokenizer_240323.model.v3",
    7: "mistral_instruct_tokenizer_241114.model.v7",
}


@pytest.mark.parametrize("version", FILES)
def test_conversations_of_mistral(version, tmp_path):
    """With the files that mistral-common carries."""
    if importlib.util.find_spec("mistral_common") is None:
        pytest.skip("mistral-common is not installed")
    mistral = pytest.importorskip("mistral_common.tokens.tokenizers.mistral")
    requests = pytest.importorskip("mistral_common.protocol.instruct.request")
    data = Path(mistral.__file__).parents[2] / "data" / FILES[version]
    if not data.is_file():
        pytest.skip("this mistral-common carries no such file")
    shutil.copy(data, tmp_path)
    (tmp_path / "params.json").write_text("{}")
    files = find_model(str(tmp_path))
    tokenizer = load_tokenizer(files)
    template = ChatTemplate(files.chat_template(), tokenizer)
    theirs = mistral.MistralTokenizer.from_file(str(data))
    cases = [(TALK[:1], None), (TALK, None), ([SYSTEM, *TALK], None)]
    if version >= 3:
        cases += [(TALK, TOOLS), ([SYSTEM, *CALLS], TOOLS)]
    for messages, tools in cases:
        text = template.render(messages, tools=tools)
        request = requests.ChatCompletionRequest.from_openai(messages=messages, tools=tools)
        expected = theirs.encode_chat_completion(request).tokens
        assert tokenizer.encode(text, add_special_tokens=False) == expected, text
    if version < 3:
        with pytest.raises(RequestError):
            template.render([*TALK[:1], {"role": "tool", "content": "x"}])
    if version == 2:
        with pytest.raises(RequestError, match="take no tools here"):
            template.render(TALK, tools=TOOLS)
