"""Values as people write them."""

from __future__ import annotations

import pytest

from octavo.config.convert import convert, nearest, parse_int
from octavo.config.engine_options import engine_options
from octavo.config.server import server_options
from octavo.types.errors import ConfigError

OPTIONS = engine_options() | server_options()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4096", 4096),
        ("4k", 4000),
        ("4K", 4096),
        ("1.5k", 1500),
        ("1.5K", 1536),
        ("4M", 4 << 20),
        ("2m", 2_000_000),
        ("3g", 3 * 10**9),
        ("3G", 3 << 30),
        ("1t", 10**12),
        ("1T", 1 << 40),
        ("1_000", 1000),
        ("-1", -1),
    ],
)
def test_whole_numbers_take_suffixes(text, value):
    assert parse_int(text) == value


@pytest.mark.parametrize("text", ["", "k", "4q", "4kk", "1.5", "1.0001k", "0x10", "4 k", "nan"])
def test_other_words_are_no_numbers(text):
    with pytest.raises(ValueError):  # noqa: PT011
        parse_int(text)


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("max_model_len", "auto", "auto"),
        ("max_model_len", "AUTO", "auto"),
        ("max_model_len", 4096.0, 4096),
        ("max_model_len", None, None),
        ("gpu_memory_utilization", "0.5", 0.5),
        ("gpu_memory_utilization", 1, 1.0),
        ("enforce_eager", True, True),
        ("enforce_eager", "False", False),
        ("served_model_name", "a", ("a",)),
        ("served_model_name", ["a", "b"], ("a", "b")),
        ("served_model_name", ['["a", "b"]'], ("a", "b")),
        ("cudagraph_capture_sizes", "[1, 2]", (1, 2)),
        ("cudagraph_capture_sizes", ["1", "2k"], (1, 2000)),
        ("cudagraph_capture_sizes", "1,2", (1, 2)),
        ("hf_overrides", '{"a": {"b": 1}}', {"a": {"b": 1}}),
        ("attention_backend", "TORCH_SDPA", "torch_sdpa"),
        ("allowed_origins", ["*"], ("*",)),
    ],
)
def test_values_convert(name, raw, value):
    assert convert(OPTIONS[name], raw) == value


@pytest.mark.parametrize(
    ("name", "raw", "parts"),
    [
        ("dtype", "flot16", ["dtype", "flot16", "bfloat16", "did you mean float16?"]),
        ("dtype", 16, ["auto", "float32"]),
        ("max_model_len", "long", ["whole number", "auto"]),
        ("max_model_len", True, ["whole number"]),
        ("max_model_len", 0, ["max_model_len=0", "[1, inf)"]),
        ("max_model_len", 4.5, ["whole number"]),
        ("gpu_memory_utilization", 0, ["(0.0, 1.0]"]),
        ("gpu_memory_utilization", "nan", ["a number"]),
        ("gpu_memory_utilization", "inf", ["a number"]),
        ("enforce_eager", "yes", ["true or false"]),
        ("enforce_eager", None, ["true or false"]),
        ("model", 3, ["a string"]),
        ("hf_overrides", "{", ["not valid JSON"]),
        ("hf_overrides", "[1]", ["a JSON object"]),
        ("cudagraph_capture_sizes", "[1,", ["not valid JSON"]),
        ("cudagraph_capture_sizes", [0], ["[1, inf)"]),
        ("port", 70000, ["[0, 65535]"]),
    ],
)
def test_wrong_values_name_field_value_and_choices(name, raw, parts):
    with pytest.raises(ConfigError) as caught:
        convert(OPTIONS[name], raw)
    for part in [name, *parts]:
        assert part in str(caught.value)


def test_nearest_is_silent_without_a_likeness():
    assert nearest("xyzzy", ["model", "seed"]) == ""
    assert nearest("sead", ["model", "seed"]) == "; did you mean seed?"
