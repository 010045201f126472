"""Streams on one event loop: none lost or mixed up, each ended for its own reason."""

import asyncio
import contextlib
import os
import signal
import time

import pytest

from octavo.engine.async_llm import AsyncLLM
from octavo.engine.input_processor import LONG_TEXT
from octavo.types.errors import (
    EngineDeadError,
    EngineStalledError,
    GenerationError,
    QueueFullError,
    RequestError,
)
from octavo.types.sampling_params import RequestOutputKind, SamplingParams
from support.fake_executor import expected_tokens
from support.processes import is_running
from support.tiny import VOCAB_SIZE, fake_config

DELTA = RequestOutputKind.DELTA


def params(**kwargs):
    return SamplingParams(**({"temperature": 0.0, "max_tokens": 8, "output_kind": DELTA} | kwargs))


@contextlib.asynccontextmanager
async def running(**kwargs):
    engine = AsyncLLM(fake_config(**kwargs))
    try:
        yield engine
    finally:
        engine.shutdown()
        assert not is_running(engine.core_pid)


async def collect(engine, prompt, sampling_params, request_id="r", **kwargs):
    """(tokens, text, the last output) of a stream of deltas."""
    tokens, text, output = [], "", None
    async for output in engine.generate(prompt, sampling_params, request_id, **kwargs):
        tokens += output.outputs[0].token_ids
        text += output.outputs[0].text
    return tokens, text, output


async def keep(outputs, stream):
    async for output in stream:
        outputs.append(output)


async def until(condition):
    while not condition():
        await asyncio.sleep(0.005)


async def test_a_thousand_streams_lose_and_reorder_nothing():
    async with running(max_num_seqs=64, max_num_batched_tokens=512) as engine:
        prompts = [[3 + i % 300, 3 + i // 300] for i in range(1000)]
        results = await asyncio.gather(
            *(collect(engine, prompt, params(), str(i)) for i, prompt in enumerate(prompts))
        )
        for prompt, (tokens, _, output) in zip(prompts, results, strict=True):
            assert tokens == expected_tokens(prompt, 8, VOCAB_SIZE)
            assert output.finished
        assert engine._outputs.num_unfinished == 0
        assert engine.metrics.counter("generation_tokens") == 8000
        await until(lambda: engine.metrics.gauge("num_requests_running") == 0)


async def test_streams():
    async with running() as engine:
        await _slow_readers_get_merged_outputs(engine)
        await _leaving_early_frees_the_sequence(engine)
        await _an_abort_storm(engine)
        await _abort_by_id_ends_the_stream(engine)
        await _equal_ids(engine)
        await _errors_are_raised_after_the_last_output(engine)
        await _refusals(engine)
        await _stop_strings_and_n(engine)
        await _long_texts_do_not_block_the_loop(engine)
        await engine.check_health()
        assert not engine.errored
        assert await engine.reset_prefix_cache() is True


async def _slow_readers_get_merged_outputs(engine):
    stream = engine.generate([5], params(max_tokens=100), "slow")
    outputs = [await anext(stream)]
    await until(lambda: engine._outputs.num_unfinished == 0)
    outputs += [output async for output in stream]
    assert len(outputs) <= 2
    tokens = [t for output in outputs for t in output.outputs[0].token_ids]
    assert tokens == expected_tokens([5], 100, VOCAB_SIZE)


async def _leaving_early_frees_the_sequence(engine):
    stream = engine.generate([5], params(max_tokens=200), "left")
    await anext(stream)
    await stream.aclose()
    assert engine._outputs.num_unfinished == 0
    await until(lambda: engine.metrics.gauge("num_requests_running") == 0)
    assert engine.metrics.gauge("kv_cache_usage_perc") == 0.0


async def _an_abort_storm(engine):
    tasks = [
        asyncio.create_task(collect(engine, [5 + i], params(max_tokens=60), f"storm{i}"))
        for i in range(60)
    ]
    for i, task in enumerate(tasks):
        if i % 3:
            await asyncio.sleep(0)
            task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    cancelled = [isinstance(result, asyncio.CancelledError) for result in results]
    assert any(cancelled)
    for i, result in enumerate(results):
        # A stream may have ended by itself before its task was cancelled.
        assert i % 3 or not cancelled[i]
        if not cancelled[i]:
            assert result[0] == expected_tokens([5 + i], 60, VOCAB_SIZE)
    assert engine._outputs.num_unfinished == 0
    await until(lambda: engine.metrics.gauge("num_requests_running") == 0)
    assert engine.metrics.gauge("num_requests_waiting") == 0


async def _abort_by_id_ends_the_stream(engine):
    reader = asyncio.create_task(collect(engine, [5], params(max_tokens=200, n=2), "gone"))
    await until(lambda: engine._outputs.num_unfinished == 2)
    await engine.abort("gone")
    _, _, output = await reader
    assert output.finished
    assert output.outputs[0].finish_reason == "abort"


async def _equal_ids(engine):
    first, second = await asyncio.gather(
        collect(engine, [5], params(), "same"), collect(engine, [6], params(), "same")
    )
    assert first[0] == expected_tokens([5], 8, VOCAB_SIZE)
    assert second[0] == expected_tokens([6], 8, VOCAB_SIZE)


async def _errors_are_raised_after_the_last_output(engine):
    outputs = []
    healthy = asyncio.create_task(collect(engine, [6], params(), "healthy"))
    with pytest.raises(GenerationError, match="logits are not finite"):
        await keep(outputs, engine.generate([5], params(extra_args={"error_at": 3}), "bad"))
    assert [t for o in outputs for t in o.outputs[0].token_ids] == expected_tokens(
        [5], 3, VOCAB_SIZE
    )
    assert outputs[-1].outputs[0].finish_reason == "error"
    assert (await healthy)[0] == expected_tokens([6], 8, VOCAB_SIZE)


async def _refusals(engine):
    for prompt, sampling_params in [
        ("", params()),
        ([VOCAB_SIZE], params()),
        ("x" * 1_000_000, params()),
        ([5] * 250, params()),
    ]:
        with pytest.raises(RequestError):
            await collect(engine, prompt, sampling_params)
    assert engine._outputs.num_unfinished == 0


async def _stop_strings_and_n(engine):
    tokens = engine.tokenizer.encode("one STOP two")
    script = params(max_tokens=200, stop=["STOP"], extra_args={"tokens": tokens}, n=2)
    texts = {0: "", 1: ""}
    finished = []
    async for output in engine.generate([5], script, "stop"):
        finished.append(output.finished)
        for completion in output.outputs:
            texts[completion.index] += completion.text
    assert texts == {0: "one ", 1: "one "}
    assert finished.count(True) == 1
    await until(lambda: engine.metrics.gauge("num_requests_running") == 0)


async def _long_texts_do_not_block_the_loop(engine):
    inputs = engine._inputs
    original = inputs.tokenize
    threads = []

    def slow(prompt):
        if len(prompt.text) > LONG_TEXT:
            time.sleep(0.2)
            threads.append(prompt)
        return original(prompt)

    inputs.tokenize = slow
    text = "x" * (LONG_TEXT + 1)
    long = asyncio.create_task(collect(engine, text, params(truncate_prompt_tokens=10), "long"))
    await collect(engine, "short", params(), "short")
    assert not threads, "the short one was not held up"
    await long
    assert len(threads) == 1
    inputs.tokenize = original


async def test_a_killed_core_ends_every_stream():
    async with running() as engine:
        readers = [
            asyncio.create_task(
                collect(engine, [5 + i], params(max_tokens=200, extra_args={"sleep": 0.02}))
            )
            for i in range(12)
        ]
        await until(lambda: engine.metrics.counter("generation_tokens") > 0)
        os.kill(engine.core_pid, signal.SIGKILL)
        for result in await asyncio.gather(*readers, return_exceptions=True):
            assert isinstance(result, EngineDeadError)
        assert engine.errored
        with pytest.raises(EngineDeadError):
            await engine.check_health()
        with pytest.raises(EngineDeadError):
            await collect(engine, [5], params())
        with pytest.raises(EngineDeadError):
            await engine.reset_prefix_cache()


async def test_shutdown_ends_every_stream():
    async with running() as engine:
        slow = params(max_tokens=200, extra_args={"sleep": 0.05})
        reader = asyncio.create_task(collect(engine, [5], slow))
        await until(lambda: engine._outputs.num_unfinished == 1)
        engine.shutdown()
        with pytest.raises(EngineDeadError, match="shut down"):
            await reader


async def test_a_full_queue_refuses_at_once():
    async with running(max_num_seqs=1, max_waiting_requests=4) as engine:
        slow = params(max_tokens=3, extra_args={"sleep": 0.05})
        results = await asyncio.gather(
            *(collect(engine, [5 + i], slow, str(i)) for i in range(20)), return_exceptions=True
        )
        refused = [r for r in results if isinstance(r, QueueFullError)]
        assert len(refused) == 15
        assert engine.metrics.counter("requests_refused") == 15
        assert all(r[0] for r in results if not isinstance(r, QueueFullError))


async def test_a_stopped_process_is_noticed_by_its_silence(monkeypatch):
    monkeypatch.setenv("OCTAVO_STALL_TIMEOUT_S", "0.3")
    async with running() as engine:
        await asyncio.sleep(0.4)
        await engine.check_health()  # an idle core may be silent
        os.kill(engine.core_pid, signal.SIGSTOP)
        reader = asyncio.create_task(collect(engine, [5], params()))
        await until(lambda: engine._outputs.num_unfinished == 1)
        await engine.check_health()
        await asyncio.sleep(0.4)
        with pytest.raises(EngineStalledError, match="nothing was heard"):
            await engine.check_health()
        os.kill(engine.core_pid, signal.SIGCONT)
        await reader
        await engine.check_health()


async def test_without_statistics_nothing_piles_up():
    async with running(disable_log_stats=True) as engine:
        await collect(engine, [5], params())
        assert engine._outputs.take_stats().finished == []
        assert engine.metrics.counter("generation_tokens") == 0


async def test_a_traced_request_leaves_one_span(monkeypatch):
    spans = []

    class Tracer:
        record = staticmethod(spans.append)

        def shutdown(self):
            spans.append("shutdown")

    monkeypatch.setattr("octavo.engine.async_llm.make_tracer", lambda endpoint: Tracer())
    engine = AsyncLLM(fake_config())
    try:
        params = SamplingParams(n=2, max_tokens=3, ignore_eos=True)
        headers = {"traceparent": "00-1-2-01"}
        async for _ in engine.generate([5, 6, 7], params, "a", trace_headers=headers):
            pass
    finally:
        engine.shutdown()
    span, end = spans
    assert (span.request_id, span.num_prompt_tokens, span.num_completion_tokens) == ("a", 3, 6)
    assert span.finish_reasons == ("length", "length")
    assert span.trace_headers == headers
    assert span.metrics.e2e_latency is not None
    assert end == "shutdown"
