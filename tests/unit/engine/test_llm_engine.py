"""The synchronous engine, with the core in this process and in its own."""

import pytest

from octavo.engine.core_client import MPClient
from octavo.engine.llm_engine import LLMEngine
from octavo.types.errors import EngineDeadError, RequestError
from octavo.types.sampling_params import RequestOutputKind, SamplingParams
from support.fake_executor import expected_tokens
from support.processes import is_running
from support.tiny import VOCAB_SIZE, fake_config

FINAL_ONLY = RequestOutputKind.FINAL_ONLY


@pytest.fixture(scope="module", params=["in process", "own process"])
def engine(request):
    with pytest.MonkeyPatch.context() as patch:
        own = request.param == "own process"
        patch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "1" if own else "0")
        engine = LLMEngine(fake_config())
    assert isinstance(engine._client, MPClient) is own
    yield engine
    engine.shutdown()


def params(**kwargs):
    return SamplingParams(**({"temperature": 0.0, "max_tokens": 8} | kwargs))


def drain(engine):
    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    return outputs


def test_add_and_step(engine):
    for i in range(20):
        engine.add_request(f"r{i}", [5 + i], params(output_kind=FINAL_ONLY))
    by_id = {output.request_id: output for output in drain(engine)}
    assert len(by_id) == 20
    for i in range(20):
        assert by_id[f"r{i}"].outputs[0].token_ids == expected_tokens([5 + i], 8, VOCAB_SIZE)
    assert engine.step() == []


def test_a_stop_string_ends_the_request_in_the_core(engine):
    text = engine.tokenizer.encode("abXYcd")
    script = params(max_tokens=200, stop="XY", extra_args={"tokens": text}, output_kind=FINAL_ONLY)
    engine.add_request("s", [5], script)
    (output,) = drain(engine)
    assert output.outputs[0].text == "ab"
    assert output.outputs[0].token_ids == text[:4]
    counts = engine._client.call_utility("get_request_counts")
    assert list(counts) == [0, 0], "the core has ended it too"


def test_deltas_equal_the_whole(engine):
    engine.add_request("d", "hi", params(output_kind=RequestOutputKind.DELTA, max_tokens=30))
    engine.add_request("f", "hi", params(output_kind=FINAL_ONLY, max_tokens=30))
    outputs = drain(engine)
    whole = next(o for o in outputs if o.request_id == "f").outputs[0]
    deltas = [o.outputs[0] for o in outputs if o.request_id == "d"]
    assert "".join(d.text for d in deltas) == whole.text
    assert [t for d in deltas for t in d.token_ids] == whole.token_ids


def test_several_sequences_of_a_prompt(engine):
    prompt = [5 + i % 40 for i in range(50)]
    engine.add_request("n", prompt, params(n=3, temperature=1.0, seed=7, output_kind=FINAL_ONLY))
    engine.add_request("1", prompt, params(temperature=1.0, seed=7, output_kind=FINAL_ONLY))
    by_id = {output.request_id: output for output in drain(engine)}
    texts = [output.token_ids for output in by_id["n"].outputs]
    assert len({tuple(t) for t in texts}) == 3
    assert texts[0] == by_id["1"].outputs[0].token_ids
    assert [o.index for o in by_id["n"].outputs] == [0, 1, 2]


def test_prompt_logprobs_and_scoring(engine):
    prompt = [5 + i for i in range(100)]  # more than one step computes
    engine.add_request("p", prompt, params(prompt_logprobs=1, max_tokens=0, output_kind=FINAL_ONLY))
    (output,) = drain(engine)
    assert output.outputs[0].token_ids == []
    assert output.outputs[0].finish_reason == "length"
    assert output.prompt_logprobs[0] is None
    assert [next(iter(p)) for p in output.prompt_logprobs[1:]] == prompt[1:]


def test_a_bad_request_changes_nothing(engine):
    with pytest.raises(RequestError):
        engine.add_request("bad", [VOCAB_SIZE], params())
    assert not engine.has_unfinished_requests()


def test_abort(engine):
    engine.add_request("a", [5], params(max_tokens=200))
    engine.add_request("b", [6], params(output_kind=FINAL_ONLY))
    engine.step()
    (aborted,) = engine.abort_requests(["a", "unknown"])
    assert aborted.outputs[0].finish_reason == "abort"
    assert [o.request_id for o in drain(engine)] == ["b"]
    assert engine.abort_requests(["a"]) == []


def test_the_prefix_cache_and_the_metrics(engine):
    prompt = [7] * 40
    for name in "xy":
        engine.add_request(name, prompt, params(output_kind=FINAL_ONLY))
        (output,) = drain(engine)
    assert output.num_cached_tokens == 32
    assert engine.metrics.counter("prefix_cache_hits") >= 32
    assert engine.metrics.counter("generation_tokens") >= 16
    assert engine.metrics.gauge("num_requests_running") == 0
    assert engine.reset_prefix_cache() is True
    engine.add_request("z", prompt, params(output_kind=FINAL_ONLY))
    (output,) = drain(engine)
    assert output.num_cached_tokens == 0


def test_an_error_of_one_request(engine):
    engine.add_request("e", [5], params(extra_args={"error_at": 2}, output_kind=FINAL_ONLY))
    engine.add_request("ok", [6], params(output_kind=FINAL_ONLY))
    by_id = {output.request_id: output for output in drain(engine)}
    assert by_id["e"].error == "logits are not finite"
    assert len(by_id["e"].outputs[0].token_ids) == 2
    assert by_id["ok"].error is None


def test_a_dead_core_and_a_fitted_length(monkeypatch):
    monkeypatch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "1")
    engine = LLMEngine(fake_config(max_model_len="auto", num_gpu_blocks_override=11))
    assert engine.config.model.max_model_len == engine._client.facts.max_model_len < 256
    engine.add_request("a", [5], params(extra_args={"exit_at": 2}))
    with pytest.raises(EngineDeadError):
        drain(engine)
    engine.shutdown()
    assert not is_running(engine._client.core_pid)
