"""LLM over the fake executor: forms of prompts, order, parameters, chat, failures."""

import subprocess
import sys

import pytest

from octavo import LLM, RequestOutputKind, SamplingParams
from octavo.types.errors import ConfigError, EngineDeadError, RequestError
from support.fake_executor import expected_tokens
from support.tiny import FAKE_EXECUTOR, VOCAB_SIZE, tiny_folder

KWARGS = {
    "load_format": "dummy",
    "distributed_executor_backend": FAKE_EXECUTOR,
    "max_model_len": 256,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "num_gpu_blocks_override": 200,
    "device": "cpu",
}


def make(monkeypatch, own_process=False, **kwargs):
    monkeypatch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "1" if own_process else "0")
    return LLM(model=tiny_folder(), **(KWARGS | kwargs))


@pytest.fixture(scope="module")
def llm():
    with pytest.MonkeyPatch.context() as patch:
        return make(patch, disable_log_stats=False, scheduling_policy="priority")


def greedy(**kwargs):
    return SamplingParams(**({"temperature": 0.0, "max_tokens": 6} | kwargs))


def tokens(output):
    return output.outputs[0].token_ids


@pytest.mark.parametrize("own_process", [False, True])
def test_outputs_come_in_the_order_of_the_prompts(monkeypatch, own_process):
    llm = make(monkeypatch, own_process)
    prompts = [{"prompt_token_ids": [5 + i]} for i in range(30)]
    params = [greedy(max_tokens=1 + (7 * i) % 20, ignore_eos=True) for i in range(30)]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    for i, output in enumerate(outputs):
        assert output.finished
        expected = expected_tokens([5 + i], 1 + (7 * i) % 20, VOCAB_SIZE)
        assert tokens(output) == expected
    llm.shutdown()


def test_forms_of_one_prompt(llm):
    ids = llm.get_tokenizer().encode("hi")
    for prompt in ("hi", ids, {"prompt": "hi"}, {"prompt_token_ids": ids}, ["hi"], [ids]):
        (output,) = llm.generate(prompt, greedy(), use_tqdm=False)
        assert tokens(output) == expected_tokens(ids, 6, VOCAB_SIZE)
    assert llm.generate([], greedy(), use_tqdm=False) == []


def test_one_set_of_parameters_serves_all_and_is_left_alone(llm):
    params = greedy(output_kind=RequestOutputKind.DELTA)
    outputs = llm.generate(["a", "b"], params, use_tqdm=False)
    assert [len(tokens(output)) for output in outputs] == [6, 6]
    assert params.output_kind is RequestOutputKind.DELTA


def test_default_parameters_come_from_the_model(monkeypatch):
    defaults = {"temperature": 0.0, "max_new_tokens": 3}
    llm = make(monkeypatch, override_generation_config=defaults)
    assert llm.get_default_sampling_params().max_tokens == 3
    (output,) = llm.generate("a", use_tqdm=False)
    assert len(tokens(output)) == 3


def test_max_tokens_are_lowered_to_what_fits(llm):
    (output,) = llm.generate([[5] * 250], greedy(max_tokens=100), use_tqdm=False)
    assert len(tokens(output)) == 6
    assert output.outputs[0].finish_reason == "length"


def test_chat(llm):
    conversation = [{"role": "user", "content": "hi"}]
    (output,) = llm.chat(conversation, greedy(), use_tqdm=False)
    assert output.prompt == "user:hi\nassistant:"
    assert output.prompt_token_ids == llm.get_tokenizer().encode(output.prompt)
    both = llm.chat([conversation, conversation[:1]], greedy(), use_tqdm=False)
    assert [tokens(o) for o in both] == [tokens(output)] * 2
    (other,) = llm.chat(
        conversation, greedy(), use_tqdm=False, chat_template="{{ messages[0].content }}!"
    )
    assert other.prompt == "hi!"


def test_a_bad_prompt_runs_none(llm):
    with pytest.raises(RequestError):
        llm.generate(["a", [VOCAB_SIZE]], greedy(), use_tqdm=False)
    assert not llm._engine.has_unfinished_requests()
    (output,) = llm.generate("a", greedy(), use_tqdm=False)
    assert output.outputs[0].index == 0


@pytest.mark.parametrize(
    ("params", "priority"), [([SamplingParams()] * 3, None), (SamplingParams(), [1])]
)
def test_lists_must_match(llm, params, priority):
    with pytest.raises(RequestError):
        llm.generate(["a", "b"], params, priority=priority, use_tqdm=False)


@pytest.mark.parametrize("prompts", [5, None, b"abc"])
def test_what_is_no_prompt_is_named(llm, prompts):
    with pytest.raises(RequestError, match=f"prompts is {type(prompts).__name__}; give a string"):
        llm.generate(prompts, greedy(), use_tqdm=False)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"temperature": 0}, "sampling_params is dict"),
        (0.5, "sampling_params is float"),
        ([{"temperature": 0}], "sampling_params holds dict"),
    ],
)
def test_what_is_no_sampling_params_is_named(llm, params, words):
    with pytest.raises(RequestError, match=words):
        llm.generate(["a"], params, use_tqdm=False)


def test_priority(llm):
    prompts = [[5 + i] for i in range(20)]
    outputs = llm.generate(prompts, greedy(), priority=[1] * 19 + [0], use_tqdm=False)
    latencies = [output.metrics.first_token_latency for output in outputs]
    assert latencies[-1] == min(latencies)


def test_a_failed_request_is_told_apart(llm):
    bad = greedy(extra_args={"error_at": 2})
    outputs = llm.generate(["a", "b"], [bad, greedy()], use_tqdm=False)
    assert outputs[0].error == "logits are not finite"
    assert outputs[0].outputs[0].finish_reason == "error"
    assert outputs[1].error is None


def test_metrics_and_the_prefix_cache(llm, monkeypatch):
    names = {metric.name for metric in llm.get_metrics()}
    assert "octavo:generation_tokens" in names
    assert llm.reset_prefix_cache() is True
    silent = make(monkeypatch)
    with pytest.raises(ConfigError, match="disable_log_stats"):
        silent.get_metrics()


def test_a_progress_bar_of_ones_own(llm):
    seen = []

    class Bar:
        def __init__(self, **kwargs):
            self.format_dict = {"elapsed": 1.0}
            seen.append(kwargs["total"])

        def __enter__(self):
            return self

        def __exit__(self, *args):
            pass

        def update(self):
            seen.append("update")

        def set_postfix_str(self, text, refresh):
            pass

    llm.generate(["a", "b"], greedy(), use_tqdm=Bar)
    assert seen == [2, "update", "update"]


def test_an_interrupt_leaves_nothing_running(llm, monkeypatch):
    step = llm._engine.step
    monkeypatch.setattr(llm._engine, "step", lambda: (step(), exec("raise KeyboardInterrupt")))
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["a", "b"], greedy(max_tokens=100), use_tqdm=False)
    monkeypatch.undo()
    assert not llm._engine.has_unfinished_requests()
    (output,) = llm.generate("a", greedy(), use_tqdm=False)
    assert output.finished


def test_a_dead_core(monkeypatch):
    llm = make(monkeypatch, own_process=True)
    with pytest.raises(EngineDeadError):
        llm.generate("a", greedy(extra_args={"exit_at": 1}), use_tqdm=False)


def test_unknown_arguments_are_refused():
    with pytest.raises(ConfigError, match="max_model_len"):
        LLM(model=tiny_folder(), max_model_length=5)


def test_without_a_tokenizer(monkeypatch):
    llm = make(monkeypatch, skip_tokenizer_init=True)
    (output,) = llm.generate([[5]], greedy(), use_tqdm=False)
    assert output.outputs[0].text == ""
    assert len(tokens(output)) == 6
    with pytest.raises(ConfigError):
        llm.get_tokenizer()


def test_a_script_needs_no_main_guard(tmp_path):
    """The core's process runs our module, never the user's script."""
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys\nsys.path[:0] = {sys.path!r}\n"
        "from octavo import LLM, SamplingParams\n"
        f"llm = LLM(model={tiny_folder()!r}, **{KWARGS!r})\n"
        "print(len(llm.generate([[5]], SamplingParams(max_tokens=3), use_tqdm=False)))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1"]
