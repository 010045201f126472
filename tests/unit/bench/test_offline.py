"""The offline benchmarks' own parts, without an engine."""

import random
import subprocess
import sys
from types import SimpleNamespace

import pytest

from octavo.bench import latency, throughput
from octavo.bench.ladder import LadderOptions
from octavo.bench.latency import LatencyOptions
from octavo.bench.offline import RandomPrompts, parse
from octavo.bench.sweep import SweepOptions
from octavo.bench.throughput import ThroughputOptions
from octavo.bench.trace import TraceOptions
from octavo.config.engine_options import engine_options
from octavo.config.options import options_of
from octavo.config.server import server_options
from octavo.types.errors import ConfigError


class FakeLLM:
    """Answers every prompt with max_tokens zeros."""

    def __init__(self, skip_tokenizer_init=False):
        model = SimpleNamespace(
            max_model_len=64, vocab_size=10, skip_tokenizer_init=skip_tokenizer_init
        )
        self.config = SimpleNamespace(model=model)
        self.calls = []

    def get_tokenizer(self):
        return SimpleNamespace(all_special_ids=frozenset({0, 1}))

    def generate(self, prompts, params, use_tqdm):
        self.calls.append(prompts)
        each = params if isinstance(params, list) else [params] * len(prompts)
        return [
            SimpleNamespace(
                prompt_token_ids=prompt,
                outputs=[SimpleNamespace(token_ids=[0] * p.max_tokens) for _ in range(p.n)],
            )
            for prompt, p in zip(prompts, each, strict=True)
        ]


def test_own_flags_and_the_engines():
    engine, options = parse(
        ["m", "--input-len", "4k", "--max-model-len", "8k", "--seed", "5"],
        LatencyOptions, "octavo bench latency", "",
    )  # fmt: skip
    assert options.input_len == 4000
    assert engine == {"model": "m", "max_model_len": "8k", "seed": "5"}


@pytest.mark.parametrize("words", ["--input-len 0", "--input-lenn 5", "--batch-size x"])
def test_wrong_flags(words):
    with pytest.raises(ConfigError):
        parse(words.split(), LatencyOptions, "octavo bench latency", "")


@pytest.mark.parametrize(("skip", "lowest"), [(False, 2), (True, 0)])
def test_random_prompts_hold_ordinary_tokens(skip, lowest):
    prompts = RandomPrompts.of(FakeLLM(skip)).make([50, 60], random.Random(0))
    assert [len(prompt) for prompt in prompts] == [50, 60]
    assert min(map(min, prompts)) == lowest
    assert max(map(max, prompts)) == 9


def test_prompts_that_do_not_fit():
    with pytest.raises(ConfigError, match="max_model_len=64"):
        RandomPrompts.of(FakeLLM()).make([64], random.Random(0))


def test_latency_measures_each_batch_and_no_warm_up():
    llm = FakeLLM()
    options = LatencyOptions(
        input_len=8, output_len=2, batch_size=3, num_iters_warmup=2, num_iters=4, disable_tqdm=True
    )
    assert len(latency.measure(llm, options)) == 4
    assert len(llm.calls) == 6
    # Equal prompts would come from the prefix cache.
    assert len({str(prompts) for prompts in llm.calls}) == 6


def test_throughput_counts_tokens():
    options = ThroughputOptions(num_prompts=5, input_len=8, output_len=3, n=2, disable_tqdm=True)
    figures = throughput.measure(FakeLLM(), options)
    assert figures["num_requests"] == 5
    assert figures["total_num_tokens"] == 5 * 8 + 5 * 2 * 3
    elapsed = figures["elapsed_time"]
    assert figures["output_tokens_per_second"] == pytest.approx(30 / elapsed)


@pytest.mark.parametrize(
    "kind", [LatencyOptions, ThroughputOptions, TraceOptions, LadderOptions, SweepOptions]
)
def test_own_flags_are_not_the_engines(kind):
    assert not options_of(kind, "").keys() & (engine_options() | server_options()).keys()


def test_no_torch_before_an_engine_is_made():
    names = ("latency", "throughput", "serve", "ladder", "sweep", "trace")
    code = f"import sys, {', '.join(f'octavo.bench.{name}' for name in names)};"
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
