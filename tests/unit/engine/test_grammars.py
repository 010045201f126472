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


LONG = "(constantinople|constants)-[0-9]{3}"


@ASYNC
def test_tokens_without_a_choice_take_no_steps_of_their_own(make_core, async_scheduling):
    found = {}
    for jump_forward in (True, False):
        core = make_core(async_scheduling, jump_forward=jump_forward)
        steps = []
        launch = core._executor.execute_model
        core._executor.execute_model = lambda step, launch=launch, steps=steps: (
            steps.append(step) or launch(step)
        )
        requests = [request(f"r{n}", LONG, prompt=(5, 6, 7 + n), max_tokens=30) for n in range(3)]
        tokens = run(core, *requests, request("plain", ignore_eos=True))[0]
        # Rows, not steps: how many steps there are depends on when each grammar was compiled.
        found[jump_forward] = tokens, sum(len(step.grammar_rows) for step in steps)
        assert any(step.forced_token_ids for step in steps) is jump_forward
    (with_jumps, few), (without, many) = found[True], found[False]
    assert with_jumps == without
    assert few < many


@ASYNC
@pytest.mark.parametrize("max_tokens", range(1, 20))
def test_a_forced_run_is_cut_where_the_tokens_end(make_core, async_scheduling, max_tokens):
    core = make_core(async_scheduling)
    tokens, ends = run(core, request("a", "abcdefghijklmnop", max_tokens=max_tokens))
    assert len(tokens["a"]) <= max_tokens
    assert "abcdefghijklmnop".startswith(text(tokens["a"]))
    stopped = len(tokens["a"]) < max_tokens or tokens["a"][-1] == EOS
    assert ends["a"].finish_reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)


@ASYNC
def test_forced_runs_longer_than_a_step(make_core, async_scheduling):
    core = make_core(async_scheduling, max_num_batched_tokens=8, max_num_seqs=4, max_model_len=256)
    regex = "[0-9](z{90})[0-9](y{50})"
    requests = [request(f"r{n}", regex, max_tokens=200, prompt=range(5, 9 + n)) for n in range(5)]
    tokens, _ = run(core, *requests)
    for each in requests:
        assert re.fullmatch(regex, text(tokens[each.request_id]))


@ASYNC
@pytest.mark.parametrize("max_tokens", range(4, 16))
def test_a_request_that_is_to_finish_does(make_core, async_scheduling, max_tokens):
    regex = "<([a-z]+|(x[0-9]){30})>"
    core = make_core(async_scheduling)
    requests = [
        request(f"r{n}", regex, max_tokens=max_tokens, prompt=(5, 6, 7 + n), logprobs=n % 2 or None)
        for n in range(6)
    ]
    for each in requests:
        each.sampling_params.structured_outputs.finish_within_limit = True
    tokens, ends = run(core, *requests, request("plain", ignore_eos=True))
    for each in requests:
        assert re.fullmatch(regex, text(tokens[each.request_id]))
        assert ends[each.request_id].finish_reason is FinishReason.STOP
    assert tokens["plain"] == expected_tokens([5, 6, 7], 16, VOCAB_SIZE)


def test_one_that_can_t_finish_is_refused(make_core):
    hopeless = request("hopeless", "[a-z]{9}", max_tokens=3)
    unknown = request("unknown", "(.|\n)*the very end", max_tokens=60)
    for each in (hopeless, unknown):
        each.sampling_params.structured_outputs.finish_within_limit = True
    core = make_core()
    tokens, ends = run(core, hopeless, unknown, request("plain"))
    assert not tokens["hopeless"]
    assert not tokens["unknown"]
    assert "max_tokens and the model leave 3" in ends["hopeless"].stop_reason
    assert ends["hopeless"].error_param == "max_tokens"
    assert ends["unknown"].error_param == "structured_outputs.finish_within_limit"


def test_a_grammar_that_costs_too_much_is_the_request_s_fault(make_core, monkeypatch):
    monkeypatch.setattr(
        "octavo.structured_output.backends.guidance.GuidanceGrammar.error",
        property(lambda self: "too many items"),
    )
    core = make_core()
    _, ends = run(core, request("costly", "[a-z]{9}"), request("plain"))
    assert ends["costly"].finish_reason is FinishReason.ERROR
    assert ends["costly"].error_param == "structured_outputs"
    assert "too many items" in ends["costly"].stop_reason
    assert "fewer ways" in ends["costly"].stop_reason
    assert ends["plain"].error_param is None
