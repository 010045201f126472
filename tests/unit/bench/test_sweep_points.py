"""Knobs, settings, and points that outlive an interruption."""

import pytest

from octavo.bench.sweep_points import FigureStore, Load, Point, make_settings, parse_knobs
from octavo.config.engine_options import engine_options
from octavo.types.errors import ConfigError

LOAD = Load("concurrency", 4)


def test_knobs_and_settings():
    words = ["max-num-seqs=8,16", "--stream_interval=1,4"]
    knobs = parse_knobs(words, engine_options())
    assert knobs == {"max_num_seqs": ["8", "16"], "stream_interval": ["1", "4"]}
    assert make_settings(knobs, "each") == [
        {}, {"max_num_seqs": "8"}, {"max_num_seqs": "16"}, {"stream_interval": "1"},
        {"stream_interval": "4"},
    ]  # fmt: skip
    combinations = make_settings(knobs, "all")
    assert len(combinations) == 4
    assert {"max_num_seqs": "16", "stream_interval": "1"} in combinations
    assert make_settings({}, "each") == make_settings({}, "all") == [{}]


@pytest.mark.parametrize(
    "words",
    [["max_num_seqs"], ["max_num_seqs="], ["max_num_sequences=3"], ["max_num_seqs=x"],
     ["max_num_seqs=0"], ["max_num_seqs=1", "max-num-seqs=2"]],
)  # fmt: skip
def test_knobs_that_no_server_has(words):
    with pytest.raises(ConfigError):
        parse_knobs(words, engine_options())


def test_figures_are_found_again(tmp_path):
    setting, figures = {"max_num_seqs": "8"}, {"output_throughput": 3.0}
    store = FigureStore(tmp_path / "s", {"flags": {"model": "m"}})
    assert store.find(setting, LOAD, 0) is None
    store.put(setting, LOAD, 0, figures)
    again = FigureStore(tmp_path / "s", {"flags": {"model": "m"}})
    assert again.find(setting, LOAD, 0) == figures
    assert again.find(setting, LOAD, 1) is None
    assert again.find(setting, Load("rate", 4), 0) is None
    assert again.find({}, LOAD, 0) is None


def test_a_folder_belongs_to_one_sweep(tmp_path):
    FigureStore(tmp_path, {"flags": {"model": "m"}})
    with pytest.raises(ConfigError, match="other flags"):
        FigureStore(tmp_path, {"flags": {"model": "other"}})


def test_a_point_is_the_median():
    repetitions = [{"a": 1.0, "b": 5.0}, {"a": 9.0, "b": 6.0}, {"a": 2.0}]
    assert Point.of({}, LOAD, repetitions).figures == {"a": 2.0, "b": 5.5}


def test_names():
    assert Point({}, LOAD, {}).setting_name == "as given"
    assert Point({"a": "1", "b": "2"}, LOAD, {}).setting_name == "a=1 b=2"
    assert (str(LOAD), str(Load("rate", 0.5))) == ("4 streams", "0.5 req/s")
