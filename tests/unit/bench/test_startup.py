import json
from typing import ClassVar

import pytest

from octavo.bench import startup
from octavo.engine.metrics_reader import Counter, Gauge
from octavo.utils import envs

PHASES = [{"imports": 2.0, "weights": 1.5}, {"imports": 1.0, "weights": 0.5, "other": 0.25}]


def test_table_and_summary():
    lines = startup.table(PHASES).splitlines()
    assert lines[0].split() == ["seconds", "first", "second"]
    assert [line.split() for line in lines[1:]] == [
        ["imports", "2.00", "1.00"],
        ["weights", "1.50", "0.50"],
        ["other", "0.00", "0.25"],
        ["sum", "3.50", "1.75"],
    ]
    assert startup.summary(PHASES) == {"first_start": 3.5, "later_start": 1.75}
    assert startup.summary(PHASES[:1])["later_start"] is None


class FakeLLM:
    alive = 0
    folders: ClassVar[list[str]] = []

    def __init__(self, model, **options):
        type(self).alive += 1
        assert self.alive == 1
        self.folders.append(str(envs.kernel_cache()))

    def get_metrics(self):
        return [
            Gauge("vllm:startup_seconds", {"phase": "imports"}, 1.25),
            Gauge("vllm:num_requests_running", {}, 3.0),
            Counter("vllm:startup_seconds", {"phase": "no"}, 3),
        ]

    def generate(self, prompts, params, use_tqdm):
        assert params.max_tokens == 1

    def shutdown(self):
        type(self).alive -= 1


@pytest.fixture
def fake(monkeypatch):
    FakeLLM.folders = []
    monkeypatch.setattr(startup, "LLM", FakeLLM)
    monkeypatch.setattr(startup.RandomPrompts, "of", lambda llm: startup.RandomPrompts)
    monkeypatch.setattr(startup.RandomPrompts, "make", lambda lengths, rng: [[1]], raising=False)
    monkeypatch.setenv("OCTAVO_KERNEL_CACHE", "before")


def test_starts_share_a_new_kernel_cache(fake, tmp_path, capsys):
    path = tmp_path / "result.json"
    assert startup.main(["some/model", "--num-starts", "2", "--output-json", str(path)]) == 0
    first, second = FakeLLM.folders
    assert first == second != "before"
    result = json.loads(path.read_text())
    assert [phases["imports"] for phases in result["starts"]] == [1.25, 1.25]
    assert list(result["starts"][0]) == ["imports", startup.FIRST_TOKEN]
    assert result["first_start"] >= 1.25
    assert "first token" in capsys.readouterr().out


def test_the_kernel_cache_can_be_kept(fake):
    startup.main(["some/model", "--num-starts", "1", "--keep-kernels"])
    assert FakeLLM.folders == ["before"]
