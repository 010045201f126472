"""Grammars in the core: waiting, failing, ending, and what happens beside them."""

from __future__ import annotations

import re
import threading
from collections import defaultdict

import pytest
from tokenizers import Tokenizer

from octavo.engine.core import EngineCore
from octavo.structured_output.backends.guidance import GuidanceBackend
from octavo.structured_output.interface import GrammarError
from octavo.types.engine_output import FinishReason
from octavo.types.request import EngineCoreRequest, FinishRequest
from octavo.types.sampling_params import ReasoningMarks, SamplingParams, StructuredOutputsParams
from support.cores import running_client
from support.fake_executor import FakeExecutor, expected_tokens
from support.tiny import EOS, VOCAB_SIZE, fake_config, tiny_folder

ASYNC = pytest.mark.parametrize("async_scheduling", [False, True])
GUIDANCE = "octavo.structured_output.backends.guidance.GuidanceBackend"


def request(name, regex=None, max_tokens=16, prompt=(5, 6, 7), **params):
    spec = None if regex is None else StructuredOutputsParams(regex=regex)
    script = params.pop("script", None)
    return EngineCoreRequest(
        name,
        list(prompt),
        len(prompt),
        SamplingParams(
            temperature=0.0,
            max_tokens=max_tokens,
            structured_outputs=spec,
            eos_token_ids=[EOS],
            extra_args=script,
            **params,
        ),
        seed=0,
        arrival_time=0.0,
        max_tokens=max_tokens,
    )


@pytest.fixture
def make_core():
    def make(async_scheduling=True, **options):
        config = fake_config(async_scheduling=async_scheduling, **options)
        return EngineCore(config, FakeExecutor(config), 1 << 40)

    return make


def run(core, *requests, until=None):
    tokens, ends = defaultdict(list), {}
    for each in requests:
        core.add_request(each)
    wanted = {each.request_id for each in requests} if until is None else until
    while not wanted <= ends.keys():
        core.wait()
        for news in core.step().values():
            for output in news.outputs:
                tokens[output.request_id] += output.new_token_ids
                if output.finish_reason is not None:
                    ends[output.request_id] = output
    return tokens, ends


def text(tokens):
    return Tokenizer.from_file(f"{tiny_folder()}/tokenizer.json").decode(tokens)


@ASYNC
def test_texts_are_the_grammar_s_and_plain_neighbours_are_undisturbed(make_core, async_scheduling):
    core = make_core(async_scheduling)
    patterns = {"a": "[a-c]{3}-[0-9]{2}", "b": "(x|yy)z", "c": "[0-9]{40}"}
    tokens, ends = run(
        core,
        request("plain", ignore_eos=True),
        *(request(name, regex) for name, regex in patterns.items()),
    )
    assert tokens["plain"] == expected_tokens([5, 6, 7], 16, VOCAB_SIZE)
    for name in "ab":
        assert re.fullmatch(patterns[name], text(tokens[name]))
        assert ends[name].finish_reason is FinishReason.STOP
    assert re.fullmatch("[0-9]{16}", text(tokens["c"]))
    assert ends["c"].finish_reason is FinishReason.LENGTH
    assert not core._grammars._sequences


@ASYNC
def test_a_grammar_that_fails_ends_its_request_only(make_core, async_scheduling, monkeypatch):
    whole = GuidanceBackend.compile

    def compile_or_fail(self, spec):
        if spec.regex == "bug":
            raise KeyError("surprise")
        return whole(self, spec)

    monkeypatch.setattr(f"{GUIDANCE}.compile", compile_or_fail)
    core = make_core(async_scheduling)
    tokens, ends = run(
        core, request("good", "ab"), request("bug", "bug"), request("bad", "[a-"), request("plain")
    )
    assert text(tokens["good"]) == "ab"
    assert ends["plain"].finish_reason is FinishReason.LENGTH
    assert ends["bug"].finish_reason is ends["bad"].finish_reason is FinishReason.ERROR
    assert "surprise" in ends["bug"].stop_reason
    assert "unclosed" in ends["bad"].stop_reason


def test_others_run_and_stop_while_a_grammar_compiles(make_core, monkeypatch):
    let = threading.Event()

    whole = GuidanceBackend.compile

    def compile_later(self, spec):
        let.wait(20)
        return whole(self, spec)

    monkeypatch.setattr(f"{GUIDANCE}.compile", compile_later)
    core = make_core()
    woken = threading.Event()
    core.wake_by(woken.set)
    waiting = [request(f"held {i}", "ab") for i in range(100)]
    _, ends = run(core, *waiting, request("plain"), until={"plain"})
    assert ends.keys() == {"plain"}
    while core.has_work():
        core.step()
    core.abort_requests([each.request_id for each in waiting[:98]])
    core.finish_requests([FinishRequest("held 98", FinishReason.STOP, 0)])
    assert core._grammars.num_held == 1
    woken.clear()
    let.set()
    assert woken.wait(20)
    _, ends = run(core, until={"held 99"})
    assert ends["held 99"].finish_reason is FinishReason.STOP


def test_one_that_is_not_ready_in_time_ends(make_core, monkeypatch):
    let = threading.Event()
    monkeypatch.setattr(f"{GUIDANCE}.compile", lambda self, spec: let.wait(20))
    core = make_core(grammar_compile_timeout=0.1)
    core._grammars.prepare()
    _, ends = run(core, request("slow", "ab"))
    let.set()
    assert ends["slow"].finish_reason is FinishReason.ERROR
    assert "within 0.1 s" in ends["slow"].stop_reason


@ASYNC
@pytest.mark.parametrize("steps", range(7))
def test_an_abort_at_any_moment_harms_nobody(make_core, async_scheduling, steps):
    core = make_core(async_scheduling)
    for each in (request("gone", "[a-z]{30}"), request("stays", "[0-9]{9}")):
        core.add_request(each)
    found = []
    for number in range(200):
        if number == steps:
            core.abort_requests(["gone"])
        core.wait()
        if core.has_work():
            for news in core.step().values():
                found += [o for o in news.outputs if o.request_id == "stays"]
        if found and found[-1].finish_reason is not None:
            break
    assert re.fullmatch("[0-9]{9}", text([t for o in found for t in o.new_token_ids]))
    assert not core._grammars._sequences


@ASYNC
def test_a_complete_text_ends_without_an_end_token(make_core, async_scheduling):
    core = make_core(async_scheduling)
    tokens, ends = run(
        core,
        request("early", "ab", min_tokens=9),
        request("no eos", "ab", ignore_eos=True),
        request("long", "[0-9]{12}"),
    )
    for name in ("early", "no eos"):
        assert text(tokens[name]) == "ab"
        assert ends[name].finish_reason is FinishReason.STOP
    assert re.fullmatch("[0-9]{12}", text(tokens["long"]))


@ASYNC
def test_a_token_out_of_the_grammar_ends_the_request(make_core, async_scheduling, monkeypatch):
    def refuse(self, token_ids):
        raise GrammarError("the grammar refuses a token")

    core = make_core(async_scheduling)
    monkeypatch.setattr("octavo.structured_output.backends.guidance.GuidanceGrammar.accept", refuse)
    _, ends = run(core, request("broken", "[a-z]{9}"), request("plain"))
    assert ends["broken"].finish_reason is FinishReason.ERROR
    assert "refuses" in ends["broken"].stop_reason
    assert ends["plain"].finish_reason is FinishReason.LENGTH


@ASYNC
def test_a_grammar_begins_after_reasoning(make_core, async_scheduling):
    core = make_core(async_scheduling)
    tokenizer = Tokenizer.from_file(f"{tiny_folder()}/tokenizer.json")
    thought = tokenizer.encode("so be it</think>", add_special_tokens=False).ids
    marks = ReasoningMarks(["<think>"], ["</think>"], True)
    spec = StructuredOutputsParams(regex="[0-9]{4}", reasoning=marks)
    bound = request("bound", script={"tokens": thought}, max_tokens=40)
    bound.sampling_params.structured_outputs = spec
    cut = request("cut", script={"tokens": thought}, max_tokens=5)
    cut.sampling_params.structured_outputs = spec
    tokens, ends = run(core, bound, cut)
    assert re.fullmatch("so be it</think>[0-9]{4}", text(tokens["bound"]))
    assert ends["bound"].finish_reason is FinishReason.STOP
    assert text(tokens["cut"]) == "so be"
    assert ends["cut"].finish_reason is FinishReason.LENGTH


def test_a_core_in_its_own_process_sleeps_and_wakes():
    with running_client() as client:
        client.add_requests([request("only", "[0-9]{5}")])
        tokens = []
        while True:
            outputs = client.get_output().outputs
            tokens += [t for output in outputs for t in output.new_token_ids]
            if any(output.finish_reason is not None for output in outputs):
                break
        assert re.fullmatch("[0-9]{5}", text(tokens))


def test_nothing_is_kept_of_requests_that_sample_nothing(make_core):
    core = make_core()
    _, ends = run(core, request("scored", "ab", max_tokens=0))
    assert ends["scored"].finish_reason is FinishReason.LENGTH
    assert core._grammars.num_running == core._grammars.num_held == 0
