"""Who else runs, and being put back into the queue, change nothing about a request."""

from __future__ import annotations

import pytest

from combos.answers import assert_same
from combos.requests import MAX_MODEL_LEN, Work, greedy, ids, seeded
from combos.runs import Mix, run, serve, start
from octavo.core.request import Request
from octavo.sampling.processors import PerRequestProcessor
from octavo.types.sampling_params import SamplingParams


class NoRepeat(PerRequestProcessor):
    """Bars every token that is among the outputs; it depends on all of the history."""

    def new_request(self, params: SamplingParams):
        if not (params.extra_args or {}).get("no_repeat"):
            return None

        def edit(output_token_ids, logits):
            logits[output_token_ids] = float("-inf")
            return logits

        return edit


NO_REPEAT = f"{__name__}:{NoRepeat.__name__}"
# Ways to draw a token, and to change what is drawn from.
KINDS = {
    "greedy": {"temperature": 0.0},
    "drawn": {},
    "truncated": {"top_k": 40, "top_p": 0.9, "min_p": 0.01, "temperature": 1.4},
    "penalties": {"repetition_penalty": 1.3, "frequency_penalty": 0.8, "presence_penalty": 0.5},
    "bad words": {"bad_words": ["the", "e", "fo"], "temperature": 1.2},
    "min_tokens": {"logit_bias": {1: 4.0}, "min_tokens": 20},
    "allowed": {"allowed_token_ids": list(range(40, 200))},
    "plug-in": {"extra_args": {"no_repeat": True}, "allowed_token_ids": list(range(40, 120))},
    "logprobs": {"logprobs": 3, "top_k": 50},
    "several": {"n": 2, "presence_penalty": 1.0},
}


def requests(kind: str, count: int, max_tokens: int) -> list[Work]:
    """Requests of a kind, with prompts and seeds of their own."""
    return [
        Work(f"{kind} {i}", ids(5 + 3 * i, i), seeded(100 + i, max_tokens, **KINDS[kind]))
        for i in range(count)
    ]


def test_alone_as_in_a_batch_of_64(family):
    works = [work for kind in KINDS for work in requests(kind, 6, 20)]
    works += [Work(f"filler {i}", ids(70, i), greedy(16)) for i in range(4)]
    llm = start(
        family("llama").folder,
        max_num_seqs=80,
        max_model_len=MAX_MODEL_LEN,
        max_num_batched_tokens=4096,
        enable_prefix_caching=False,
        logits_processors=[NO_REPEAT],
    )
    together = serve(llm, works)
    some = list(range(0, 64, 2))
    alone = [serve(llm, [works[i]]).answers[0] for i in some]
    llm.shutdown()
    assert_same(alone, [together.answers[i] for i in some], "63 others")


@pytest.fixture
def preempted(monkeypatch):
    """(tokens computed, outputs so far) of every preemption."""
    found = []
    preempt = Request.preempt

    def note(request):
        found.append((request.num_computed_tokens, request.num_output_tokens))
        preempt(request)

    monkeypatch.setattr(Request, "preempt", note)
    return found


@pytest.mark.parametrize("steps", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_before_and_after_a_preemption(family, preempted, steps):
    """Each kind of request is interrupted in the middle of its output and goes on as it would."""
    folder = family("llama").folder
    options = {"logits_processors": [NO_REPEAT]}
    roomy = start(folder, **options, **Mix(steps_in_flight=steps).options())
    tiny = start(folder, **options, **Mix(steps_in_flight=steps, few_blocks=True).options())
    for kind in KINDS:
        works = requests(kind, 8, 44)
        expected = serve(roomy, works)
        assert not preempted
        interrupted = serve(tiny, works)
        assert_same(expected.answers, interrupted.answers, "preemptions")
        assert any(num_outputs > 1 for _, num_outputs in preempted), kind
        if kind == "plug-in":
            for answer in interrupted.answers:
                assert len(set(answer.sequences[0].token_ids)) == 44, "the plug-in bars repeats"
        preempted.clear()
    roomy.shutdown()
    tiny.shutdown()


def test_prompt_logprobs_of_a_prompt_that_is_interrupted(family, preempted):
    """Three sequences grow, a block each four steps, while a long prompt is computed in parts."""
    tiny = family("llama")
    works = [Work(f"growing {i}", ids(5, i), greedy(60, ignore_eos=True)) for i in range(3)]
    works.append(Work("scored", ids(100, 9), greedy(20, prompt_logprobs=2)))
    options = Mix(chunk=8).options()
    options |= {"max_num_seqs": 4, "block_size": 4, "num_gpu_blocks_override": 36}
    found = run(tiny.folder, works, **options)
    assert any(0 < num_computed < 100 for num_computed, _ in preempted)
    assert_same([tiny.plain.answer(work) for work in works], found.answers, "an interruption")


def test_requests_keep_their_answers_when_the_order_of_arrival_changes(family):
    tiny = family("llama")
    options = Mix(few_blocks=True).options()
    shuffled = tiny.works[1::2] + tiny.works[0::2]
    expected = tiny.expected[1::2] + tiny.expected[0::2]
    policy = {"scheduling_policy": "priority", "long_prefill_token_threshold": 24}
    found = run(tiny.folder, shuffled, **options, **policy)
    assert_same(expected, found.answers, "another order and chunks of 24")
