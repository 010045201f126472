from __future__ import annotations

import pytest

from octavo.core.request import Request, RequestStatus
from octavo.types.engine_output import EventType, FinishReason
from unit.core.simulated_executor import EOS, make_request


def make(prompt=5, max_tokens=4, max_model_len=100, **options):
    return Request(
        make_request("a", prompt, max_tokens, **options),
        arrival_index=0,
        max_model_len=max_model_len,
    )


def test_the_token_list_is_a_copy():
    new = make_request("a", 5)
    request = Request(new, arrival_index=0, max_model_len=100)
    request.token_ids.append(1)
    assert len(new.token_ids) == 5


@pytest.mark.parametrize(
    ("max_tokens", "max_model_len", "max_length", "max_computed"),
    [(4, 100, 9, 8), (1, 100, 6, 5), (0, 100, 5, 5), (4, 7, 7, 6)],
)
def test_where_computing_ends(max_tokens, max_model_len, max_length, max_computed):
    request = make(5, max_tokens, max_model_len)
    assert request.max_length == max_length
    assert request.max_computed == max_computed


def test_states():
    request = make()
    assert request.status is RequestStatus.WAITING
    request.start(3, 4)
    assert request.status is RequestStatus.RUNNING
    assert (request.slot, request.num_computed_tokens, request.prefill_end) == (3, 4, 5)
    request.token_ids.append(9)
    request.draft_token_ids = [1]
    request.preempt()
    assert request.status is RequestStatus.PREEMPTED
    assert (request.slot, request.num_computed_tokens, request.draft_token_ids) == (-1, 0, [])
    assert (request.num_preemptions, request.num_output_tokens) == (1, 1)
    request.start(1, 0)
    assert request.prefill_end == 6
    request.finish(FinishReason.STOP, 7)
    assert request.status is RequestStatus.FINISHED
    assert (request.finish_reason, request.stop_reason) == (FinishReason.STOP, 7)


def test_only_a_resumed_request_within_its_room_is_protected():
    request = make()
    request.reserve_until = 50
    request.start(0, 0)
    assert not request.protected
    request.preempt()
    request.start(0, 0)
    assert request.protected
    request.num_computed_tokens = 51
    assert not request.protected


def test_ids_that_stop():
    assert make(eos=True).stop_ids == {EOS}
    assert make(eos=True, ignore_eos=True).stop_ids == frozenset()
    assert make(eos=True, stop_token_ids=[1, 2]).stop_ids == {EOS, 1, 2}


@pytest.mark.parametrize(
    ("params", "reads"),
    [
        ({}, True),
        ({"prompt_logprobs": 0}, False),
        ({"skip_reading_prefix_cache": True}, False),
        ({"skip_reading_prefix_cache": False}, True),
    ],
)
def test_who_reads_the_prefix_cache(params, reads):
    assert make(**params).reads_prefix_cache is reads


def test_events_are_news():
    request = make()
    request.has_news = False
    request.record(EventType.PREEMPTED)
    assert request.has_news
    assert [event.type for event in request.events] == [EventType.PREEMPTED]
