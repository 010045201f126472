"""From the core's news to outputs: kinds, stop strings, log-probabilities, errors, ends."""

import functools
import random
from itertools import pairwise

import pytest

from octavo.checkpoints.locate import find_model
from octavo.engine.output_processor import OutputProcessor
from octavo.tokenizers.tokenizer import load_tokenizer
from octavo.types.engine_output import (
    EngineCoreEvent,
    EngineCoreOutput,
    EventType,
    FinishReason,
    TokenLogprobs,
)
from octavo.types.outputs import RequestOutput
from octavo.types.request import EngineCoreRequest
from octavo.types.sampling_params import RequestOutputKind, SamplingParams
from support.tiny import tiny_folder
from support.tiny_tokenizer import byte_fallback

DELTA, CUMULATIVE = RequestOutputKind.DELTA, RequestOutputKind.CUMULATIVE
FINAL_ONLY = RequestOutputKind.FINAL_ONLY


@functools.cache
def tokenizer():
    return load_tokenizer(find_model(tiny_folder()))


def ids(text):
    return tokenizer().encode(text)


class Run:
    """One request, fed token by token or in pieces."""

    def __init__(self, stream_interval=1, prompt=(5, 6), tokens_of=None, **params):
        self.processor = OutputProcessor(tokens_of or tokenizer(), stream_interval)
        request = EngineCoreRequest(
            "0:x", list(prompt), len(prompt), SamplingParams(max_tokens=99, **params), 1, 0.0, 99
        )
        self.children = self.processor.add_request("x", request, "the prompt")
        self.outputs: list[RequestOutput] = []
        self.finishes = []

    def feed(self, tokens=(), index=0, timestamp=0.0, **fields):
        news = EngineCoreOutput(self.children[index].request_id, list(tokens), **fields)
        processed = self.processor.process([news], timestamp)
        self.outputs += processed.request_outputs
        self.finishes += processed.finishes

    @property
    def texts(self):
        return [output.outputs[0].text for output in self.outputs]


def test_deltas_joined_are_the_whole():
    run = Run(output_kind=DELTA)
    for token in ids("héllo 😀"):
        run.feed([token])
    run.feed(finish_reason=FinishReason.LENGTH)
    assert "".join(run.texts) == "héllo 😀"
    assert [t for o in run.outputs for t in o.outputs[0].token_ids] == ids("héllo 😀")
    assert [o.finished for o in run.outputs] == [False] * (len(run.outputs) - 1) + [True]
    assert run.outputs[-1].outputs[0].finish_reason == "length"
    assert run.outputs[0].prompt == "the prompt"
    assert run.outputs[0].prompt_token_ids == [5, 6]
    assert run.processor.num_unfinished == 0


def test_cumulative_outputs_hold_everything_so_far():
    run = Run(output_kind=CUMULATIVE)
    for token in ids("abc"):
        run.feed([token])
    assert run.texts == ["a", "ab", "abc"]
    lists = [output.outputs[0].token_ids for output in run.outputs]
    assert [len(tokens) for tokens in lists] == [1, 2, 3], "outputs do not share one growing list"


def test_final_only_is_one_output():
    run = Run(output_kind=FINAL_ONLY)
    for token in ids("abc"):
        run.feed([token])
    assert run.outputs == []
    run.feed(ids("d"), finish_reason=FinishReason.STOP, stop_reason=9)
    (output,) = run.outputs
    assert output.outputs[0].token_ids == ids("abcd")
    assert output.outputs[0].stop_reason == 9


@pytest.mark.parametrize(
    ("interval", "expected"), [(1, [1, 1, 1, 1, 1, 0]), (3, [1, 3, 1]), (100, [1, 4])]
)
def test_the_stream_interval_counts_tokens_after_the_first(interval, expected):
    run = Run(stream_interval=interval, output_kind=DELTA)
    for token in ids("abcde"):
        run.feed([token])
    run.feed(finish_reason=FinishReason.LENGTH)
    assert [len(o.outputs[0].token_ids) for o in run.outputs] == expected
    assert "".join(run.texts) == "abcde"


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize("kind", [DELTA, CUMULATIVE, FINAL_ONLY])
def test_a_stop_string_ends_the_request_at_its_token(pieces, kind):
    run = Run(output_kind=kind, stop=["STOP"], logprobs=0)
    tokens = ids("say STOP and more")
    for begin in range(0, len(tokens), pieces):
        chunk = tokens[begin : begin + pieces]
        run.feed(chunk, new_logprobs=[TokenLogprobs([t], [-1.0], 1) for t in chunk])
    (finish,) = run.finishes
    assert (finish.request_id, finish.reason) == ("0:x", FinishReason.STOP)
    assert finish.num_output_tokens == len("say STOP")
    last = run.outputs[-1].outputs[0]
    text = "".join(run.texts) if kind is DELTA else last.text
    assert text == "say "
    assert (last.finish_reason, last.stop_reason) == ("stop", "STOP")
    shown = [o.outputs[0] for o in run.outputs] if kind is DELTA else [last]
    assert [t for c in shown for t in c.token_ids] == ids("say STOP")
    assert sum(len(c.logprobs) for c in shown) == len("say STOP")
    assert last.cumulative_logprob == -8.0
    stats = run.processor.take_stats()
    assert stats.num_generation_tokens == len("say STOP")
    assert stats.finished[0].num_generation_tokens == len("say STOP")


def test_a_stop_string_in_the_last_chunk_needs_no_message_to_the_core():
    run = Run(output_kind=DELTA, stop=["b"])
    run.feed(ids("abc"), finish_reason=FinishReason.LENGTH)
    assert run.finishes == []
    assert run.outputs[-1].outputs[0].stop_reason == "b"
    assert run.outputs[-1].outputs[0].finish_reason == "stop"


@pytest.mark.parametrize("stop", ["\n", "never"])
def test_tokens_are_shown_once_it_is_certain_that_they_stay(stop):
    """A line end of bytes is read when its run ends: by then tokens after it have come."""
    fallback = byte_fallback()
    tokens = [fallback.backend.token_to_id(t) for t in ("a", "<0x0A>", "<0xC3>", "<0xA9>", "b")]
    run = Run(output_kind=DELTA, tokens_of=fallback, stop=stop, logprobs=0)
    counts = []
    for token in tokens:
        run.feed([token], new_logprobs=[TokenLogprobs([token], [-0.5], 1)])
        counts.append(run.processor.take_stats().num_generation_tokens)
    assert all(count >= 0 for count in counts)
    shown = [token for output in run.outputs for token in output.outputs[0].token_ids]
    assert shown == (tokens[:2] if stop == "\n" else tokens)
    assert sum(counts) == len(shown)
    assert "".join(run.texts) == ("a" if stop == "\n" else "a\néb")
    assert [len(o.outputs[0].logprobs) for o in run.outputs] == [
        len(o.outputs[0].token_ids) for o in run.outputs
    ]


def test_what_arrives_after_the_end_is_ignored():
    run = Run(output_kind=DELTA, stop=["b"])
    run.feed(ids("ab"))
    run.feed(ids("c"))
    run.feed(ids("d"), finish_reason=FinishReason.LENGTH)
    assert len(run.outputs) == 1


def test_log_probabilities():
    run = Run(output_kind=DELTA, logprobs=1, prompt_logprobs=1, prompt=ids("ab"))
    a, b, c = ids("abc")
    run.feed(new_prompt_logprobs=[None, TokenLogprobs([b, c], [-3.0, -0.1], 5)])
    assert run.outputs == [], "a part of the prompt is no output"
    run.feed([c], new_logprobs=[TokenLogprobs([c, a], [-0.5, -0.4], 2)])
    run.feed([a], new_logprobs=[TokenLogprobs([a, c], [-0.25, -2.0], 1)])
    first, second = run.outputs
    assert first.prompt_logprobs[0] is None
    assert first.prompt_logprobs[1][b].decoded_token == "b"
    assert second.prompt_logprobs is None, "shown once in a stream"
    assert first.outputs[0].logprobs[0][a].decoded_token == "a"
    assert [len(o.outputs[0].logprobs) for o in run.outputs] == [1, 1]
    assert second.outputs[0].cumulative_logprob == -0.75


def test_scoring_a_prompt_produces_no_token():
    run = Run(output_kind=FINAL_ONLY, prompt_logprobs=0, prompt=ids("ab"))
    entry = TokenLogprobs([ids("b")[0]], [-1.0], 1)
    run.feed(new_prompt_logprobs=[None, entry], finish_reason=FinishReason.LENGTH)
    (output,) = run.outputs
    assert output.outputs[0].token_ids == []
    assert len(output.prompt_logprobs) == 2
    assert run.processor.take_stats().finished[0].times.first_token_latency is None


def test_no_logprobs_unless_asked_for():
    run = Run(output_kind=DELTA)
    run.feed(ids("a"))
    completion = run.outputs[0].outputs[0]
    assert (completion.logprobs, completion.cumulative_logprob) == (None, None)
    assert run.outputs[0].prompt_logprobs is None


@pytest.mark.parametrize("kind", [DELTA, CUMULATIVE, FINAL_ONLY])
def test_sequences_of_one_request_finish_together(kind):
    run = Run(output_kind=kind, n=2)
    run.feed(ids("a"), index=1)
    run.feed(ids("b"), index=0, num_cached_tokens=0)
    run.feed(ids("c"), index=0, finish_reason=FinishReason.LENGTH)
    run.feed(ids("d"), index=1, finish_reason=FinishReason.LENGTH)
    assert [o.finished for o in run.outputs].count(True) == 1
    assert run.outputs[-1].finished
    joined = {0: "", 1: ""}
    for output in run.outputs:
        for c in output.outputs:
            joined[c.index] = joined[c.index] + c.text if kind is DELTA else c.text
    assert joined == {0: "bc", 1: "ad"}
    assert [f.n for f in run.processor.take_stats().finished] == [2, None]
    assert run.processor.internal_ids("x") == []


def test_an_error_from_the_core_ends_that_request_only():
    run = Run(output_kind=DELTA)
    other = EngineCoreRequest("1:y", [5], 1, SamplingParams(), 1, 0.0, 16)
    run.processor.add_request("y", other, None)
    run.feed(ids("a"))
    run.feed(finish_reason=FinishReason.ERROR, stop_reason="logits are not finite")
    last = run.outputs[-1]
    assert last.finished
    assert last.error == "logits are not finite"
    assert (last.outputs[0].finish_reason, last.outputs[0].stop_reason) == ("error", None)
    assert run.processor.num_unfinished == 1


@pytest.mark.parametrize("kind", [DELTA, CUMULATIVE])
def test_an_error_in_processing_ends_that_request_only(kind, monkeypatch):
    run = Run(output_kind=kind)
    run.feed(ids("a"))
    state = run.processor._states["0:x"]

    def explode(*args):
        raise ZeroDivisionError("bug")

    monkeypatch.setattr(state._detokenizer._stream, "feed", explode)
    run.feed(ids("b"))
    last = run.outputs[-1]
    assert last.error == "ZeroDivisionError: bug"
    assert last.outputs[0].finish_reason == "error"
    assert last.outputs[0].text == ("" if kind is DELTA else "a")
    assert run.finishes[0].reason is FinishReason.ERROR, "the core is told to stop"
    assert run.processor.num_unfinished == 0


def test_equal_client_ids_do_not_disturb_each_other():
    run = Run(output_kind=DELTA)
    twin = EngineCoreRequest("1:x", [7], 1, SamplingParams(output_kind=DELTA), 1, 0.0, 16)
    run.processor.add_request("x", twin, None)
    assert run.processor.internal_ids("x") == ["0:x", "1:x"]
    run.feed(ids("a"), finish_reason=FinishReason.LENGTH)
    assert run.processor.internal_ids("x") == ["1:x"]
    aborted, outputs = run.processor.abort(run.processor.internal_ids("x"))
    assert aborted == ["1:x"]
    assert outputs[0].outputs[0].finish_reason == "abort"
    assert run.processor.internal_ids("x") == []


def test_an_abort_shows_what_there_is():
    run = Run(output_kind=CUMULATIVE, stop=["bcd"])
    run.feed(ids("ab"))
    _, (output,) = run.processor.abort(["0:x", "unknown"])
    assert output.finished
    assert output.outputs[0].text == "ab"
    assert run.processor.take_stats().finished[0].reason is FinishReason.ABORT


def test_dropping_is_silent_and_counted():
    run = Run(output_kind=DELTA, n=2)
    assert run.processor.drop(["0:x-0", "0:x-1", "0:x-0"]) == ["0:x-0", "0:x-1"]
    assert run.processor.num_unfinished == 0
    assert len(run.processor.take_stats().finished) == 2


def test_times():
    run = Run(output_kind=DELTA)
    queued = EngineCoreEvent(EventType.QUEUED, 10.0)
    scheduled = EngineCoreEvent(EventType.SCHEDULED, 10.5)
    again = EngineCoreEvent(EventType.SCHEDULED, 13.0)
    run.feed(ids("a"), timestamp=12.0, events=[queued, scheduled], num_cached_tokens=16)
    run.feed(ids("b"), timestamp=14.0, events=[again])
    run.feed(ids("c"), timestamp=15.0, finish_reason=FinishReason.LENGTH)
    stats = run.processor.take_stats()
    assert stats.inter_token_latencies == {2.0: 1, 1.0: 1}
    assert len(stats.first_token_latencies) == 1
    assert (stats.num_prompt_tokens, stats.num_generation_tokens) == (2, 3)
    times = stats.finished[0].times
    assert (times.queue, times.prefill, times.decode, times.inference) == (0.5, 1.5, 3.0, 4.5)
    metrics = run.outputs[-1].metrics
    assert metrics.queue_time == 0.5
    assert metrics.e2e_latency >= metrics.first_token_latency
    assert run.outputs[0].num_cached_tokens == 16
    assert run.processor.take_stats().finished == []


def test_without_detokenizing_there_are_only_ids():
    run = Run(output_kind=DELTA, detokenize=False)
    run.feed(ids("ab"))
    assert run.outputs[0].outputs[0].text == ""
    assert run.outputs[0].outputs[0].token_ids == ids("ab")


class Reader:
    """Stands where a collector does, and takes plain news as it likes."""

    def __init__(self, takes):
        self.takes = takes
        self.news = []  # (index, text, tokens)
        self.num_plain = 0

    def put_text(self, index, text, token_ids):
        if not self.takes():
            return False
        self.news.append((index, text, list(token_ids)))
        self.num_plain += 1
        return True

    def put(self, output):
        for completion in output.outputs:
            self.news.append((completion.index, completion.text, completion.token_ids))


@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("stop", [[], ["xx", "dog. G"]])
@pytest.mark.parametrize("skip", [True, False])
def test_plain_news_are_those_of_outputs(interval, n, stop, skip):
    text = "The quick brown fox: lazy dog. Größe 東京 👨‍👩‍👧 end"
    tokens = [*ids(text), tokenizer().eos_token_id or 0, *ids(" on")]
    pieces = random.Random(3)
    cuts = [0]
    while cuts[-1] < len(tokens):
        cuts.append(cuts[-1] + pieces.choice([1, 1, 1, 2, 5]))

    def run(takes):
        reader = Reader(takes)
        processor = OutputProcessor(tokenizer(), interval)
        params = SamplingParams(
            n=n, stop=stop, max_tokens=99, output_kind=DELTA, skip_special_tokens=skip
        )
        request = EngineCoreRequest("0:x", [5], 1, params, 1, 0.0, 99)
        children = processor.add_request("x", request, None, reader)
        for begin, end in pairwise(cuts):
            news = [EngineCoreOutput(child.request_id, tokens[begin:end]) for child in children]
            processor.process(news, float(begin))
        ends = [
            EngineCoreOutput(child.request_id, ids("."), finish_reason=FinishReason.LENGTH)
            for child in children
        ]
        processor.process(ends, 99.0)
        stats = processor.take_stats()
        return reader, (stats.num_generation_tokens, stats.inter_token_latencies)

    expected, expected_stats = run(lambda: False)
    assert not expected.num_plain
    assert run(lambda: True)[0].num_plain
    chance = random.Random(5)
    for takes in (lambda: True, lambda: chance.random() < 0.5):
        reader, stats = run(takes)
        assert reader.news == expected.news
        assert stats == expected_stats
