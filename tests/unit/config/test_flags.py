"""Flags: their list, their spellings, and what becomes of a typo in any of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.config.engine_options import EngineOptions, engine_options
from octavo.config.flags import FlagParser, add_flags
from octavo.config.server import ServerArgs, server_options
from octavo.config.sources import add_model_and_config, parse_options
from octavo.types.errors import ConfigError

OPTIONS = engine_options() | server_options()
SNAPSHOT = Path(__file__).with_name("flags_snapshot.txt")


def parser():
    made = FlagParser("octavo serve", "")
    add_model_and_config(made)
    add_flags(made, engine_options(), sections=True)
    add_flags(made, server_options(), sections=False)
    return made


def values(*words):
    return parse_options(parser(), words, OPTIONS)[0]


def engine(*words):
    return EngineOptions(**values(*words))


def test_the_flags_are_those_of_the_snapshot():
    lines = [
        " ".join([known.flag, *([known.short] if known.short else []), f"= {known.default!r}"])
        for known in OPTIONS.values()
    ]
    expected = SNAPSHOT.read_text().splitlines()
    assert lines == expected, (
        "flags changed: if meant, write these lines to flags_snapshot.txt:\n" + "\n".join(lines)
    )


def test_every_option_has_a_sentence_of_help():
    for known in OPTIONS.values():
        assert known.help[0].isupper() or known.help.startswith("auto:")
        assert known.help.endswith((".", ")")), known.name


def typos(flag):
    """The flag with a letter left out, doubled, swapped with the next, or wrong."""
    middle = 2 + (len(flag) - 2) // 2
    yield flag[:middle] + flag[middle + 1 :]
    yield flag[:middle] + flag[middle] + flag[middle:]
    yield flag[: middle - 1] + flag[middle] + flag[middle - 1] + flag[middle + 1 :]
    yield flag[:middle] + "x" + flag[middle + 1 :]


@pytest.mark.parametrize("flag", [f for f in parser().flags() if f.startswith("--")])
def test_a_typo_in_any_flag_gets_a_guess(flag):
    known = parser().flags()
    for typo in typos(flag):
        if typo in known:
            continue
        with pytest.raises(ConfigError) as caught:
            values(typo, "1")
        assert f"{typo}; did you mean {flag}?" in str(caught.value)


def test_underscores_are_dashes():
    assert values("--max_model_len", "4k") == values("--max-model-len=4k")
    assert values("--served-model-name", "a_b")["served_model_name"] == ["a_b"]


def test_booleans_have_a_no_form():
    assert engine("--no-enable-prefix-caching").enable_prefix_caching is False
    assert engine("--enforce-eager").enforce_eager is True
    with pytest.raises(ConfigError, match="--enforce-eager or --no-enforce-eager"):
        values("--enforce-eager=true")


def test_short_forms():
    assert engine("-tp", "2").tensor_parallel_size == 2
    sizes = engine("-cc.cudagraph_capture_sizes=[1,2]").cudagraph_capture_sizes
    assert sizes == (1, 2)
    assert engine("-ac", '{"backend": "triton"}').attention_backend == "triton"
    assert engine("-cc.mode=3").compilation_mode == "3"
    for words in (["-O2"], ["-O", "2"], ["-O=2"], ["--optimization-level", "2"]):
        assert engine(*words).optimization_level == 2


@pytest.mark.parametrize(
    "words",
    [
        ["--cudagraph-capture-sizes", "1", "2"],
        ["--cudagraph-capture-sizes", "[1, 2]"],
        ["--compilation-config", '{"cudagraph_capture_sizes": [1, 2]}'],
        ["--compilation-config.cudagraph_capture_sizes", "[1, 2]"],
        ["--compilation_config.cudagraph-capture-sizes=[1, 2]"],
    ],
)
def test_lists_and_sections(words):
    assert engine(*words).cudagraph_capture_sizes == (1, 2)


def test_dotted_values_go_over_json():
    given = engine(
        "--hf-overrides",
        '{"rope_scaling": {"factor": 2.0, "type": "yarn"}}',
        "--hf-overrides.rope_scaling.factor",
        "4.0",
        "--hf-overrides.note",
        "plain text",
    )
    assert given.hf_overrides == {
        "rope_scaling": {"factor": 4.0, "type": "yarn"},
        "note": "plain text",
    }


def test_the_model_is_a_positional():
    assert values("a/b")["model"] == "a/b"
    assert values("--port", "1", "a/b", "--seed", "2")["model"] == "a/b"
    assert values("a/b", "--model", "a/b")["model"] == "a/b"
    with pytest.raises(ConfigError, match="'a/b' and 'c'"):
        values("a/b", "--model", "c")
    with pytest.raises(ConfigError, match="unexpected argument 'c'"):
        values("a/b", "c")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--port"], "--port: expected one argument"),
        (["--hf-overrides.a"], "expects a value"),
        (["--port.x", "1"], "unknown flag --port.x"),
        (["--cache-config", "{"], "not valid JSON"),
        (["--cache-config", "[]"], "expected a mapping"),
        (["--cache-config.blok_size", "1"], "did you mean block_size?"),
        (["--cache-config.block_size=8", "--block-size", "4"], "given twice"),
        (["--hf-overrides.a=1", "--hf-overrides.a.b=2"], "no object"),
        (["-x"], "unknown flag -x"),
        (["--no-enable-lora"], "--no-enable-lora is refused: LoRA"),
        (["--speculative-config.method", "ngram"], "--speculative-config is refused"),
    ],
)
def test_wrong_command_lines(words, part):
    with pytest.raises(ConfigError) as caught:
        values(*words)
    assert part in str(caught.value)


def test_precedence_is_flag_file_default(tmp_path):
    file = tmp_path / "serve.yaml"
    file.write_text(
        "model: from/file\nmax-model-len: 4k\nport: 9000\ncache_config: {block_size: 32}\n"
    )
    given = values("--config", str(file), "--max-model-len", "2k")
    options = {k: v for k, v in given.items() if k in engine_options()}
    made = EngineOptions(**options)
    assert (made.model, made.max_model_len, made.block_size) == ("from/file", 2000, 32)
    assert made.seed == 0
    assert given["port"] == 9000
    assert values("other/model", "--config", str(file))["model"] == "other/model"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("max_modl_len: 1", "did you mean max_model_len?"),
        ("cache-config: {blok_size: 1}", "did you mean block_size?"),
        ("enable-lora: true", "enable-lora is refused: LoRA"),
        ("cache-config: {swap_space: 4}", "swap_space is refused"),
        ("- a", "`name: value` lines"),
        ("a: [", "not valid YAML"),
        ("1: 2", "`name: value` lines"),
    ],
)
def test_wrong_files(text, part, tmp_path):
    file = tmp_path / "serve.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        values("--config", str(file))
    assert part in str(caught.value)
    assert "serve.yaml" in str(caught.value)


def test_an_empty_or_missing_file(tmp_path):
    empty = tmp_path / "empty.yaml"
    empty.write_text("# nothing\n")
    assert values("--config", str(empty)) == {}
    with pytest.raises(ConfigError, match="can't read the file"):
        values("--config", str(tmp_path / "none.yaml"))


def test_help_can_be_filtered(capsys):
    with pytest.raises(SystemExit) as caught:
        parser().parse(["--help=scheduler"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "--scheduling-policy" in text
    assert "--port" not in text
    with pytest.raises(SystemExit):
        parser().parse(["--help=max_model_len"])
    assert "--max-model-len" in capsys.readouterr().out


def test_whole_help_lists_every_flag():
    text = parser().format_help()
    for known in OPTIONS.values():
        assert known.flag in text


def test_server_values_are_checked_and_keys_hidden():
    args = ServerArgs.from_dict(
        {"port": "8k", "api-key": ["s3cret"], "allowed_origins": "https://x"}
    )
    assert (args.port, args.allowed_origins) == (8000, ("https://x",))
    assert "s3cret" not in str(args.dump())
    with pytest.raises(ConfigError, match="did you mean port"):
        ServerArgs.from_dict({"prt": 1})
