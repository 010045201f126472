"""Minutes of random load on a CUDA device: nothing is lost, nothing leaks, no token changes."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.timeout(900),
]

SECONDS = float(os.environ.get("OCTAVO_SOAK_SECONDS", "240"))
VOCAB = 2048
NUM_TOKENS = 48
MOST_IN_FLIGHT = 60


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    from support.tiny_models import save_wide_qwen3  # noqa: PLC0415 (slow)

    folder = tmp_path_factory.mktemp("tiny-qwen3")
    save_wide_qwen3(folder, vocab_size=VOCAB, intermediate_size=512, num_hidden_layers=4)
    return folder


@pytest.fixture(scope="module")
def prompts():
    """Some with common beginnings, some longer than a step's token budget."""
    rng = random.Random(0)
    base = [rng.randrange(1, VOCAB) for _ in range(400)]
    lengths = [rng.randrange(1, 120) for _ in range(20)] + [500, 700]
    own = [[rng.randrange(1, VOCAB) for _ in range(length)] for length in lengths]
    shared = [base[: 16 * rng.randrange(2, 25)] + prompt[:30] for prompt in own]
    return own + shared


@dataclass
class Load:
    """What is in flight and what came of the rest."""

    greedy: dict[str, int] = field(default_factory=dict)
    finished: int = 0
    aborted: int = 0
    differing: list[int] = field(default_factory=list)


def sampling(rng: random.Random):
    """(parameters, whether they are the plain greedy ones)."""
    from octavo import SamplingParams  # noqa: PLC0415 (collected without a GPU too)

    if rng.random() < 0.5:
        return greedy_params(), True
    settings = {
        "temperature": rng.choice([0.0, 0.7, 1.5]),
        "top_p": rng.choice([1.0, 0.9]),
        "top_k": rng.choice([0, 20]),
        "min_p": rng.choice([0.0, 0.05]),
        "presence_penalty": rng.choice([0.0, 0.5]),
        "logprobs": rng.choice([None, 3]),
        "prompt_logprobs": rng.choice([None, None, None, 1]),
        "max_tokens": rng.randrange(1, 200),
        "seed": rng.randrange(1000),
        "n": rng.choice([1, 1, 2]),
        "detokenize": False,
    }
    return SamplingParams(**settings), False


def greedy_params():
    """The parameters whose tokens are known."""
    from octavo import SamplingParams  # noqa: PLC0415 (collected without a GPU too)

    return SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True, detokenize=False)


def collect(load: Load, outputs, known: list[list[int]]) -> None:
    """Check finished requests."""
    for output in outputs:
        if not output.finished:
            continue
        assert output.error is None, output.error
        reasons = {sequence.finish_reason for sequence in output.outputs}
        assert reasons <= {"stop", "length"}, reasons
        load.finished += 1
        prompt = load.greedy.pop(output.request_id)
        if prompt >= 0 and output.outputs[0].token_ids != known[prompt]:
            load.differing.append(prompt)


@pytest.mark.parametrize("mode", ["float32", "batch invariant, bfloat16"])
def test_random_load(model_dir, prompts, mode):
    """Arrivals, aborts and preemptions; in batch-invariant mode every greedy token is known."""
    from octavo.config.engine_args import EngineArgs  # noqa: PLC0415
    from octavo.engine.llm_engine import LLMEngine  # noqa: PLC0415

    invariant = mode != "float32"
    engine = LLMEngine.from_engine_args(
        EngineArgs(
            model=str(model_dir),
            skip_tokenizer_init=True,
            dtype="bfloat16" if invariant else "float32",
            batch_invariant=invariant,
            max_num_seqs=32,
            max_num_batched_tokens=256,
            max_model_len=1024,
            gpu_memory_utilization=0.1,
            num_gpu_blocks_override=220,  # about a third of what 32 requests want
            disable_log_stats=False,
        )
    )
    try:
        known = []
        for index, prompt in enumerate(prompts):
            engine.add_request(f"alone-{index}", {"prompt_token_ids": prompt}, greedy_params())
            last = None
            while engine.has_unfinished_requests():
                for output in engine.step():
                    last = output
            known.append(last.outputs[0].token_ids)
        rng = random.Random(1)
        load = Load()
        count = 0
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            while len(load.greedy) < MOST_IN_FLIGHT and rng.random() < 0.8:
                params, plain = sampling(rng)
                index = rng.randrange(len(prompts))
                name = f"r{count}"
                count += 1
                engine.add_request(name, {"prompt_token_ids": prompts[index]}, params)
                load.greedy[name] = index if plain else -1
            if load.greedy and rng.random() < 0.02:
                victim = rng.choice(list(load.greedy))
                engine.abort_requests([victim])
                del load.greedy[victim]
                load.aborted += 1
            if rng.random() < 0.0005:
                end_of_lull = time.monotonic() + 0.2
                while engine.has_unfinished_requests():
                    collect(load, engine.step(), known)
                assert engine.reset_prefix_cache()
                time.sleep(max(end_of_lull - time.monotonic(), 0))
            collect(load, engine.step(), known)
        while engine.has_unfinished_requests():
            collect(load, engine.step(), known)
        assert not load.greedy, "requests without an end"
        # Only refused while a request holds blocks.
        assert engine.reset_prefix_cache()
        registry = engine.metrics.registry
        from octavo.engine.metrics_reader import read_metrics  # noqa: PLC0415

        values = {metric.name: metric for metric in read_metrics(registry)}
        preemptions = values["octavo:num_preemptions"].value
        print(mode, load.finished, "finished,", load.aborted, "aborted,", preemptions, "preempted")
        assert load.finished > 100
        assert load.aborted > 0
        assert preemptions > 0
        if invariant:
            assert not load.differing
    finally:
        engine.shutdown()
