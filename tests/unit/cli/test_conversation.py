"""Conversation: what goes into a request, and files."""

import json

import pytest

from octavo.cli.conversation import Conversation
from octavo.types.errors import OctavoError


def made():
    conversation = Conversation("be brief")
    for role, text in [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")]:
        conversation.say(role, text)
    return conversation


def test_messages_and_taking_back():
    conversation = made()
    assert [m["role"] for m in conversation.messages()][:2] == ["system", "user"]
    assert conversation.take_back() == "c"
    assert conversation.messages()[-1] == {"role": "assistant", "content": "b"}
    assert conversation.take_back() == "a"
    assert conversation.take_back() is None
    assert conversation.messages() == [{"role": "system", "content": "be brief"}]


def test_a_file_gives_back_what_was_saved(tmp_path):
    path = tmp_path / "talk.json"
    conversation = made()
    conversation.say("user", "ünï\n")
    conversation.save(path)
    loaded = Conversation.load(path)
    assert loaded.messages() == conversation.messages()
    assert loaded.system == "be brief"


@pytest.mark.parametrize(
    "content", ["", "{}", "[1]", '[{"role": "x", "content": "a"}]', '[{"role": "user"}]']
)
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "talk.json"
    path.write_text(content)
    with pytest.raises(OctavoError, match="is no saved conversation"):
        Conversation.load(path)


def test_places_that_can_not_be_used(tmp_path):
    with pytest.raises(OctavoError, match="can't be read: No such file"):
        Conversation.load(tmp_path / "none.json")
    with pytest.raises(OctavoError, match="can't be written: Is a directory"):
        made().save(tmp_path)
    (tmp_path / "odd.json").write_bytes(json.dumps([]).encode())
    assert Conversation.load(tmp_path / "odd.json").messages() == []
