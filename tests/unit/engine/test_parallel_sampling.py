"""n sequences of one request: seeds of their own, one prompt, one answer."""

import pytest

from octavo.engine.parallel_sampling import ParentRequest, child_requests, derive_seed
from octavo.types.outputs import CompletionOutput, RequestOutput
from octavo.types.request import EngineCoreRequest
from octavo.types.sampling_params import RequestOutputKind, SamplingParams

DELTA, CUMULATIVE = RequestOutputKind.DELTA, RequestOutputKind.CUMULATIVE
FINAL_ONLY = RequestOutputKind.FINAL_ONLY


def request(**params):
    return EngineCoreRequest("5:x", [1, 2], 2, SamplingParams(**params), 7, 0.0, 16)


def child_output(index, text, finished=False, **fields):
    reason = "length" if finished else None
    completion = CompletionOutput(index, text, [1], finish_reason=reason)
    return RequestOutput("x", None, [1, 2], [completion], finished, **fields)


def test_one_sequence_is_the_request_itself():
    only = request()
    assert child_requests(only) == [only]


def test_children_have_their_own_ids_and_seeds_and_share_the_rest():
    children = child_requests(request(n=5, prompt_logprobs=2, logprobs=1))
    assert len({child.request_id for child in children}) == 5
    assert len({child.seed for child in children}) == 5
    assert children[0].seed == 7
    assert all(child.sampling_params.n == 1 for child in children)
    assert all(child.token_ids == [1, 2] for child in children)
    assert [child.sampling_params.prompt_logprobs for child in children] == [2] + [None] * 4
    assert all(child.sampling_params.logprobs == 1 for child in children)


def test_seeds_are_stable_and_fit_63_bits():
    assert derive_seed(7, 1) == 7743363793754919501
    seeds = {derive_seed(seed, i) for seed in (0, 1, -9, (1 << 63) - 1) for i in range(50)}
    assert len(seeds) == 200
    assert all(0 <= seed < 1 << 63 for seed in seeds)


def test_greedy_copies_are_allowed():
    assert len(child_requests(request(n=3, temperature=0.0))) == 3


def gathered(kind, events):
    parent = ParentRequest(2, kind)
    shown = []
    for event in events:
        if parent.gather(event):
            texts = [(o.index, o.text) for o in event.outputs]
            shown.append((texts, event.finished))
    return shown


EVENTS = [(1, "x", False), (0, "a", False), (1, "xy", True), (0, "ab", True)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            DELTA,
            [([(1, "x")], False), ([(0, "a")], False), ([(1, "xy")], False), ([(0, "ab")], True)],
        ),
        (
            CUMULATIVE,
            [
                ([(1, "x")], False),
                ([(0, "a"), (1, "x")], False),
                ([(0, "a"), (1, "xy")], False),
                ([(0, "ab"), (1, "xy")], True),
            ],
        ),
        (FINAL_ONLY, [([(0, "ab"), (1, "xy")], True)]),
    ],
)
def test_outputs_are_gathered_by_kind(kind, expected):
    assert gathered(kind, [child_output(*event) for event in EVENTS]) == expected


def test_prompt_facts_come_from_the_first_child():
    parent = ParentRequest(2, FINAL_ONLY)
    parent.gather(child_output(0, "a", True, prompt_logprobs=[None], num_cached_tokens=0))
    last = child_output(1, "b", True, num_cached_tokens=16)
    assert parent.gather(last)
    assert last.prompt_logprobs == [None]
    assert last.num_cached_tokens == 0


def test_an_error_of_one_child_is_kept_to_the_end():
    parent = ParentRequest(2, DELTA)
    parent.gather(child_output(0, "", True, error="NaN"))
    last = child_output(1, "b", True)
    assert parent.gather(last)
    assert last.error == "NaN"
    assert last.finished
