"""EngineCore over the fake executor: order of start, steps in flight, guards, utilities."""

import logging
from collections import defaultdict

import pytest

from octavo.engine.core import EngineCore, build_core
from octavo.types.engine_output import FinishReason
from octavo.types.errors import ConfigError
from octavo.types.request import EngineCoreRequest, FinishRequest
from octavo.types.sampling_params import SamplingParams
from support.fake_executor import FakeExecutor, Handle, expected_tokens
from support.tiny import VOCAB_SIZE, fake_config

ASYNC = pytest.mark.parametrize("async_scheduling", [False, True])


def request(name, prompt=(5, 6, 7), max_tokens=8, **params):
    params = {"temperature": 0.0} | params
    script = {k: params.pop(k) for k in ("error_at", "bad_token_at", "crash_at") if k in params}
    return EngineCoreRequest(
        name,
        list(prompt),
        len(prompt),
        SamplingParams(max_tokens=max_tokens, extra_args=script or None, **params),
        seed=0,
        arrival_time=0.0,
        max_tokens=max_tokens,
    )


def run(core, *requests):
    """Tokens and ends by request; stops when there is no work."""
    for each in requests:
        core.add_request(each)
    tokens = defaultdict(list)
    ends = {}
    while core.has_work():
        for outputs in core.step().values():
            for output in outputs.outputs:
                tokens[output.request_id] += output.new_token_ids
                if output.finish_reason is not None:
                    ends[output.request_id] = output
    return tokens, ends


class RecordingExecutor(FakeExecutor):
    """Notes the calls and how many steps are in flight."""

    def __init__(self, config):
        self.calls = ["init"]
        self.in_flight = self.most_in_flight = 0
        super().__init__(config)

    def kv_cache_specs(self):
        self.calls.append("specs")
        return super().kv_cache_specs()

    def available_kv_memory(self):
        self.calls.append("memory")
        return super().available_kv_memory()

    def initialize_kv_cache(self, config):
        self.calls.append("initialize")
        self.kv_config = config
        super().initialize_kv_cache(config)

    def execute_model(self, step):
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        handle = super().execute_model(step)
        executor = self

        class Counted(Handle):
            def result(self):
                executor.in_flight -= 1
                return super().result()

        return Counted(handle.output, handle.seconds)


def recording_core(**kwargs):
    config = fake_config(**kwargs)
    executor = RecordingExecutor(config)
    return EngineCore(config, executor, kv_limit=1 << 20), executor


def test_the_order_of_the_start():
    core, executor = recording_core()
    order = [call for call in dict.fromkeys(executor.calls) if call != "init"]
    assert [c for c in order if c != "specs"] == ["memory", "initialize"]
    assert executor.calls.index("specs") < executor.calls.index("initialize")
    assert core.facts.num_blocks == executor.kv_config.num_blocks
    assert core.facts.kv_cache_bytes == executor.kv_config.total_bytes


def test_the_cache_is_what_is_planned_or_what_there_is():
    config = fake_config()
    block_bytes = 2 * 2 * 1 * 4 * 4 * 16
    for limit, blocks in [(100 * block_bytes, 100), (1 << 30, 512)]:
        assert EngineCore(config, FakeExecutor(config), limit).facts.num_blocks == blocks


def test_a_cache_too_small_for_one_request_is_refused():
    with pytest.raises(ConfigError, match="max_model_len"):
        build_core(fake_config(num_gpu_blocks_override=3))


def test_an_automatic_length_is_fitted():
    facts = build_core(fake_config(max_model_len="auto", num_gpu_blocks_override=11)).facts
    assert 100 < facts.max_model_len <= 160


@ASYNC
@pytest.mark.parametrize("budget", [8, 64])
@pytest.mark.parametrize("blocks", [None, 18])
def test_tokens_do_not_depend_on_how_steps_are_made(async_scheduling, budget, blocks):
    core = build_core(
        fake_config(
            async_scheduling=async_scheduling,
            max_num_batched_tokens=budget,
            num_gpu_blocks_override=blocks,
        )
    )
    prompts = {f"r{i}": [3 + i] * (1 + 9 * i) for i in range(6)}
    requests = [request(name, prompt, max_tokens=60) for name, prompt in prompts.items()]
    tokens, ends = run(core, *requests)
    for name, prompt in prompts.items():
        assert tokens[name] == expected_tokens(prompt, 60, VOCAB_SIZE)
        assert ends[name].finish_reason is FinishReason.LENGTH


@ASYNC
def test_steps_in_flight(async_scheduling):
    core, executor = recording_core(async_scheduling=async_scheduling)
    run(core, *(request(f"r{i}") for i in range(4)))
    assert executor.most_in_flight == (2 if async_scheduling else 1)
    assert executor.in_flight == 0


def test_a_launch_returns_at_once_when_another_may_follow():
    core, executor = recording_core(async_scheduling=True)
    core.add_request(request("a"))
    assert core.step() == {}
    assert executor.in_flight == 1
    assert core.step()[0].outputs[0].new_token_ids, "the second is launched, then the first ends"
    assert executor.in_flight == 1


@ASYNC
@pytest.mark.parametrize("fault", ["error_at", "bad_token_at"])
def test_an_error_of_one_request_ends_that_one(async_scheduling, fault):
    core = build_core(fake_config(async_scheduling=async_scheduling))
    bad = request("bad", (9, 9), **{fault: 3})
    tokens, ends = run(core, request("a"), bad, request("b", (8,)))
    assert ends["bad"].finish_reason is FinishReason.ERROR
    assert isinstance(ends["bad"].stop_reason, str)
    assert tokens["bad"] == expected_tokens([9, 9], 3, VOCAB_SIZE)
    assert tokens["a"] == expected_tokens([5, 6, 7], 8, VOCAB_SIZE)
    assert tokens["b"] == expected_tokens([8], 8, VOCAB_SIZE)


def test_a_request_that_cant_be_queued_ends_with_an_error():
    core = build_core(fake_config())
    tokens, ends = run(core, request("a"), request("b", (5,) * 300))
    assert ends["b"].finish_reason is FinishReason.ERROR
    assert "300" in ends["b"].stop_reason
    assert tokens["a"] == expected_tokens([5, 6, 7], 8, VOCAB_SIZE)


def test_a_device_fault_is_summed_up_without_prompts_and_passes_through(caplog):
    core = build_core(fake_config())
    core.add_request(request("victim", (201, 202, 203), crash_at=2))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        run(core)
    (record,) = [r for r in caplog.records if r.levelno == logging.CRITICAL]
    assert "1 rows (1 decode)" in record.getMessage()
    assert "201" not in record.getMessage()


def test_the_summary_names_new_requests(caplog):
    core = build_core(fake_config())
    core.add_request(request("victim", (201, 202, 203), crash_at=0))
    with pytest.raises(RuntimeError):
        core.step()
    assert "victim (3 tokens, 0 cached)" in caplog.text


@ASYNC
def test_an_abort_yields_no_further_tokens_and_frees_everything(async_scheduling):
    core = build_core(fake_config(async_scheduling=async_scheduling))
    core.add_request(request("a", max_tokens=100))
    core.add_request(request("b"))
    for _ in range(4):
        core.step()
    core.abort_requests(["a", "unknown"])
    stats = None
    while core.has_work():
        for outputs in core.step().values():
            assert all(output.request_id == "b" for output in outputs.outputs)
            stats = outputs.scheduler_stats or stats
    assert (stats.num_running, stats.num_waiting, stats.kv_cache_usage) == (0, 0, 0.0)


def test_gauges_are_refreshed_when_the_last_request_is_aborted():
    core = build_core(fake_config())
    core.add_request(request("a"))
    core.abort_requests(["a"])
    assert core.has_work()
    assert core.step()[0].scheduler_stats.num_waiting == 0
    assert not core.has_work()


def test_a_finish_from_the_front_end():
    core = build_core(fake_config())
    core.add_request(request("a", max_tokens=100))
    for _ in range(5):
        core.step()
    core.finish_requests([FinishRequest("a", FinishReason.STOP, 2)])
    while core.has_work():
        for outputs in core.step().values():
            assert outputs.outputs == []


def test_without_statistics_only_news_is_sent():
    core = build_core(fake_config(disable_log_stats=True))
    core.add_request(request("a", (5,) * 200))
    seen = [outputs for _ in range(3) for outputs in core.step().values()]
    assert all(outputs.outputs for outputs in seen)
    assert all(outputs.scheduler_stats is None for outputs in seen)


def test_outputs_carry_the_time():
    core = build_core(fake_config())
    core.add_request(request("a"))
    times = [o.timestamp for _ in range(6) for o in core.step().values()]
    assert times == sorted(times)
    assert times[0] > 0


def test_utilities():
    core = build_core(fake_config())
    assert core.call_utility("reset_prefix_cache", []) is True
    assert list(core.call_utility("get_request_counts", [])) == [0, 0]
    assert core.call_utility("collective_rpc", ["echo", [1, 2]]) == [[1, 2]]
    with pytest.raises(ValueError, match="no utility 'shutdown'"):
        core.call_utility("shutdown", [])
    with pytest.raises(ValueError, match="no public method"):
        core.call_utility("collective_rpc", ["nothing"])


def test_a_failed_start_stops_the_workers(monkeypatch):
    stopped = []
    monkeypatch.setattr(FakeExecutor, "shutdown", lambda self: stopped.append(self))
    monkeypatch.setattr(FakeExecutor, "initialize_kv_cache", lambda self, config: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        build_core(fake_config())
    assert len(stopped) == 1
