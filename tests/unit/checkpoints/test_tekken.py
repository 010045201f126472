"""tekken.json gives the token ids that its definition gives."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.checkpoints.locate import find_model
from octavo.entrypoints.chat_template import ChatTemplate
from octavo.tokenizers.tokenizer import load_tokenizer
from octavo.types.errors import CheckpointError, RequestError
from support.tiny_tekken import encode, write_tekken

SPECIAL = 24


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tekken")
    (folder / "params.json").write_text("{}")
    vocabulary = write_tekken(folder / "tekken.json", num_special=SPECIAL)
    return load_tokenizer(find_model(str(folder))), vocabulary


@given(text=st.one_of(st.text(max_size=40), st.text(alphabet="theqn o'L1é\n ", max_size=60)))
def test_ids(made, text):
    tokenizer, vocabulary = made
    assert tokenizer.encode(text, add_special_tokens=False) == encode(text, vocabulary, SPECIAL)
    assert tokenizer.decode(encode(text, vocabulary, SPECIAL)) == text


def test_special_tokens(made):
    tokenizer, vocabulary = made
    assert tokenizer.encode("[INST]the[/INST]")[:2] == [1, 3]
    assert tokenizer.encode("[INST]the[/INST]")[-1] == 4
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)
    assert tokenizer.vocab_size == SPECIAL + len(vocabulary)
    assert tokenizer.backend.id_to_token(23) == "<SPECIAL_23>"
    assert tokenizer.backend.token_to_id("[TOOL_CONTENT]") == 19
    assert tokenizer.token_bytes(SPECIAL + 0xE9) == b"\xe9"


def test_listed_special_tokens(tmp_path):
    (tmp_path / "params.json").write_text("{}")
    write_tekken(tmp_path / "tekken.json", num_special=8, listed=True)
    backend = load_tokenizer(find_model(str(tmp_path))).backend
    assert [backend.id_to_token(index) for index in (5, 6, 7)] == [
        "[THINK]",
        "<SPECIAL_6>",
        "<SPECIAL_7>",
    ]


CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "A?"},
    {"role": "assistant", "content": "B."},
    {"role": "user", "content": "C?"},
]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v3", "<s>[INST]A?[/INST]B.</s>[INST]Be brief.\n\nC?[/INST]"),
        ("v7", "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]A?[/INST]B.</s>[INST]C?[/INST]"),
        ("v13", "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]A?[/INST]B.</s>[INST]C?[/INST]"),
    ],
)
def test_conversations(tmp_path, version, expected):
    (tmp_path / "params.json").write_text("{}")
    write_tekken(tmp_path / "tekken.json", version)
    files = find_model(str(tmp_path))
    template = ChatTemplate(files.chat_template(), load_tokenizer(files))
    assert template.render(CONVERSATION) == expected
    assert template.render(CONVERSATION[1:2]) == "<s>[INST]A?[/INST]"
    with pytest.raises(RequestError, match="the role critic is not"):
        template.render([*CONVERSATION, {"role": "critic", "content": "1"}])


def test_unknown_version_has_no_template(tmp_path):
    (tmp_path / "params.json").write_text("{}")
    write_tekken(tmp_path / "tekken.json", "v99")
    assert find_model(str(tmp_path)).chat_template() is None


def test_own_files_go_first(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    write_tekken(tmp_path / "tekken.json")
    (tmp_path / "chat_template.jinja").write_text("own")
    assert find_model(str(tmp_path)).chat_template() == "own"
    (tmp_path / "tokenizer.json").write_text("{}")
    files = find_model(str(tmp_path))
    assert (files.tokenizer_json(), files.tokenizer_config()) == ("{}", {})


@pytest.mark.parametrize("change", [{"vocab": None}, {"config": {}}, {"vocab": [{"rank": 0}]}])
def test_files_that_are_none(tmp_path, change):
    (tmp_path / "config.json").write_text("{}")
    write_tekken(tmp_path / "tekken.json")
    content = json.loads((tmp_path / "tekken.json").read_text()) | change
    (tmp_path / "tekken.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"tekken\.json is no tekken tokenizer"):
        find_model(str(tmp_path)).tokenizer_json()
