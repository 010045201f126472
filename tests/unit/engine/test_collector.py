"""A slow reader gets merged outputs, a fast one each; errors come after what is held."""

import asyncio

import pytest

from octavo.engine.collector import OutputTap, RequestOutputCollector
from octavo.types.errors import EngineDeadError
from octavo.types.outputs import CompletionOutput, RequestOutput
from octavo.types.sampling_params import RequestOutputKind


def output(text, tokens, finished=False, index=0):
    reason = "stop" if finished else None
    completion = CompletionOutput(index, text, list(tokens), finish_reason=reason)
    return RequestOutput("r", None, [1], [completion], finished)


async def test_deltas_are_joined_while_nobody_reads():
    collector = RequestOutputCollector(RequestOutputKind.DELTA)
    collector.put(output("a", [1]))
    collector.put(output("b", [2]))
    collector.put(output("c", [3], finished=True))
    merged = await collector.get()
    assert merged.outputs[0].text == "abc"
    assert merged.outputs[0].token_ids == [1, 2, 3]
    assert merged.finished
    assert merged.outputs[0].finish_reason == "stop"
    assert collector.get_nowait() is None


async def test_cumulative_outputs_replace_each_other():
    collector = RequestOutputCollector(RequestOutputKind.CUMULATIVE)
    collector.put(output("a", [1]))
    collector.put(output("ab", [1, 2]))
    assert (await collector.get()).outputs[0].text == "ab"


async def test_sequences_of_one_request_stay_apart():
    collector = RequestOutputCollector(RequestOutputKind.DELTA)
    for index, text in [(0, "a"), (1, "x"), (0, "b"), (1, "y")]:
        collector.put(output(text, [1], index=index))
    merged = await collector.get()
    assert [(o.index, o.text) for o in merged.outputs] == [(0, "ab"), (1, "xy")]


async def test_get_waits_for_news():
    collector = RequestOutputCollector(RequestOutputKind.DELTA)
    reader = asyncio.create_task(collector.get())
    await asyncio.sleep(0)
    assert not reader.done()
    collector.put(output("a", [1]))
    assert (await reader).outputs[0].text == "a"


async def test_an_error_follows_what_is_held_and_stays():
    collector = RequestOutputCollector(RequestOutputKind.DELTA)
    collector.put(output("a", [1]))
    collector.fail(EngineDeadError("gone"))
    assert (await collector.get()).outputs[0].text == "a"
    for _ in range(2):
        with pytest.raises(EngineDeadError, match="gone"):
            await collector.get()


async def test_an_error_wakes_a_waiting_reader():
    collector = RequestOutputCollector(RequestOutputKind.DELTA)
    reader = asyncio.create_task(collector.get())
    await asyncio.sleep(0)
    collector.fail(EngineDeadError("gone"))
    with pytest.raises(EngineDeadError):
        await reader


async def test_a_waiting_reader_takes_outputs_where_they_are_made():
    tap = OutputTap()
    collector = RequestOutputCollector(RequestOutputKind.DELTA, tap)
    taken = []
    tap.take = lambda output: taken.append(output.outputs[0].text) or True
    collector.put(output("a", [1]))  # nobody waits yet
    assert (await collector.get()).outputs[0].text == "a"
    reader = asyncio.create_task(collector.get())
    await asyncio.sleep(0)
    collector.put(output("b", [2]))
    collector.put(output("c", [3]))
    collector.put(output("d", [4], finished=True))
    assert (await reader).outputs[0].text == "d"
    assert taken == ["b", "c"]


async def test_what_is_not_taken_waits_and_so_does_all_that_follows():
    tap = OutputTap()
    collector = RequestOutputCollector(RequestOutputKind.DELTA, tap)
    answers = iter([True, False])
    taken = []

    def take(output):
        taken.append(output.outputs[0].text)
        return next(answers)

    tap.take = take
    reader = asyncio.create_task(collector.get())
    await asyncio.sleep(0)
    for text in "abc":
        collector.put(output(text, [1]))
    assert (await reader).outputs[0].text == "bc"
    assert taken == ["a", "b"]


async def test_an_error_of_the_taker_ends_its_stream_only():
    tap = OutputTap()
    collector = RequestOutputCollector(RequestOutputKind.DELTA, tap)

    def take(output):
        raise ValueError("broken")

    tap.take = take
    reader = asyncio.create_task(collector.get())
    await asyncio.sleep(0)
    collector.put(output("a", [1]))
    with pytest.raises(ValueError, match="broken"):
        await reader


async def test_a_waiting_reader_takes_plain_news_without_an_output():
    tap = OutputTap()
    collector = RequestOutputCollector(RequestOutputKind.DELTA, tap)
    taken = []
    assert not collector.put_text(0, "a", [1])  # nobody takes any
    tap.take_text = lambda *news: taken.append(news) or len(taken) < 3
    assert not collector.put_text(0, "a", [1])  # nobody waits yet
    reader = asyncio.create_task(collector.get())
    await asyncio.sleep(0)
    assert collector.put_text(0, "b", [2])
    assert collector.put_text(1, "c", [3, 4])
    assert not collector.put_text(0, "d", [5])  # refused
    collector.put(output("d", [5]))
    assert not collector.put_text(0, "e", [6])  # it may not overtake
    assert (await reader).outputs[0].text == "d"
    assert taken == [(0, "b", [2]), (1, "c", [3, 4]), (0, "d", [5])]


async def test_an_error_of_the_taker_of_plain_news_ends_its_stream_only():
    tap = OutputTap()
    collector = RequestOutputCollector(RequestOutputKind.DELTA, tap)

    def take_text(*news):
        raise ValueError("broken")

    tap.take_text = take_text
    reader = asyncio.create_task(collector.get())
    await asyncio.sleep(0)
    assert collector.put_text(0, "a", [1])
    with pytest.raises(ValueError, match="broken"):
        await reader
