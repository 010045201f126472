"""Where API keys come from, and who they say a client is."""

import pytest

from octavo.config.server import ServerArgs
from octavo.entrypoints.openai.keys import ApiKeys
from octavo.types.errors import ConfigError


def test_keys_of_every_source_count(tmp_path, monkeypatch):
    path = tmp_path / "keys"
    path.write_text("# of the team\nfile-one\n\n  file-two \n")
    monkeypatch.setenv("OCTAVO_API_KEY", "env-one, env-two")
    keys = ApiKeys.of(ServerArgs(api_key=("flag",), api_key_file=str(path)))
    for key in ("flag", "env-one", "env-two", "file-one", "file-two"):
        identity = keys.identify(key.encode())
        assert identity is not None
        assert not identity.is_admin
    for key in ("", "# of the team", "other", "file-one\n"):
        assert keys.identify(key.encode()) is None


def test_tenants_are_told_apart_without_giving_keys_away():
    keys = ApiKeys(["one", "two"])
    one, again, two = (keys.identify(key) for key in (b"one", b"one", b"two"))
    assert one == again
    assert one.tenant != two.tenant
    assert "one" not in one.tenant


def test_admin_keys_are_others(monkeypatch):
    monkeypatch.setenv("OCTAVO_ADMIN_API_KEY", "root")
    keys = ApiKeys.of(ServerArgs(api_key=("one",)))
    assert keys.identify(b"root").is_admin
    with pytest.raises(ConfigError, match="admin_api_key"):
        ApiKeys.of(ServerArgs(api_key=("root",)))


@pytest.mark.parametrize("text", ["", "# nothing\n\n", None, "a" * (1 << 20) + "\nb"])
def test_a_file_without_keys_is_refused(tmp_path, text):
    path = tmp_path / "keys"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match="api_key_file"):
        ApiKeys.of(ServerArgs(api_key_file=str(path)))


def test_an_empty_key_is_refused():
    with pytest.raises(ConfigError, match="empty key"):
        ApiKeys.of(ServerArgs(api_key=("",)))
