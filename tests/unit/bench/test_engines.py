"""Engines in processes of their own: a stand-in with the API that the worker needs."""

import sys
import textwrap

import pytest

from octavo.bench.engines import Engine, EngineCommand
from octavo.types.errors import ConfigError, OctavoError

STAND_IN = """
    import os, sys
    __version__ = "1.2"
    print("chatter on standard output")
    os.system("echo chatter of a process")

    class SamplingParams:
        def __init__(self, **values):
            self.max_tokens = values["max_tokens"]
            assert values["ignore_eos"] and values["temperature"] == 0.0

    class Output:
        def __init__(self, count):
            self.token_ids = [0] * count
            self.outputs = [self]

    class LLM:
        def __init__(self, model, **options):
            if model == "missing":
                raise ValueError("no such model")
            self.short = options.get("short", 0)
            self.seen = []

        def generate(self, prompts, params, use_tqdm):
            self.seen += [tuple(p["prompt_token_ids"]) for p in prompts]
            assert len(set(self.seen)) == len(self.seen), "a prompt came twice"
            print("more chatter")
            return [Output(p.max_tokens - self.short) for p in params]
"""
BATCH = {
    "groups": [[3, 5, 9], [1, 20, 20]], "output": [2, 4], "shared": 6, "shared_seed": "s",
    "seed": "a", "vocab": 1000,
}  # fmt: skip


@pytest.fixture
def command(tmp_path):
    (tmp_path / "stand_in.py").write_text(textwrap.dedent(STAND_IN))
    text = f"PYTHONPATH={tmp_path} {sys.executable} stand_in model flag=true name=x"
    return EngineCommand.parse(text)


def test_batches(command):
    engine = Engine(command)
    try:
        assert engine.facts["version"] == "1.2"
        assert engine.start_seconds > 0
        answer = engine.ask(BATCH)
        assert 20 + 6 + 3 * (5 + 6) <= answer["input"] <= 20 + 6 + 3 * (9 + 6)
        assert 4 * 2 <= answer["output"] <= 4 * 4
        assert answer["seconds"] > 0
        engine.ask(BATCH | {"seed": "b"})
    finally:
        engine.stop()
    engine.stop()


def test_a_command():
    command = EngineCommand.parse("A=1 B='x y' python vllm /m dtype=float32 eager=true n=5")
    assert command.environment == {"A": "1", "B": "x y"}
    assert (command.python, command.engine, command.model) == ("python", "vllm", "/m")
    assert command.options == {"dtype": "float32", "eager": True, "n": 5}


@pytest.mark.parametrize("text", ["", "python vllm", "A=1 python vllm", "python vllm m eager"])
def test_commands_that_lack_something(text):
    with pytest.raises(ConfigError, match="engine_command"):
        EngineCommand.parse(text)


def test_an_engine_that_does_not_start(command):
    missing = EngineCommand(command.python, "stand_in", "missing", {}, command.environment)
    with pytest.raises(OctavoError, match="stand_in ended early"):
        Engine(missing)


def test_an_engine_that_does_less_than_asked(command):
    options = {"short": 1}
    engine = Engine(EngineCommand(command.python, "stand_in", "m", options, command.environment))
    try:
        with pytest.raises(OctavoError, match="ended early"):
            engine.ask(BATCH)
    finally:
        engine.stop()


def test_caches_of_a_start(command, tmp_path):
    (tmp_path / "stand_in.py").write_text(
        "import os\n__version__ = os.environ['TRITON_CACHE_DIR']\n"
        "class LLM:\n    def __init__(self, **k): pass\nSamplingParams = None\n"
    )
    engine = Engine(command, tmp_path / "cache")
    engine.stop()
    assert engine.facts["version"] == str(tmp_path / "cache" / "TRITON_CACHE_DIR")
