from __future__ import annotations

import random

from octavo.core.request import Request
from octavo.core.request_queue import LOOK_AHEAD, MAX_BYPASSES, RequestQueue, Verdict
from unit.core.simulated_executor import make_request


def make(index, priority=0, arrival_time=0.0):
    new = make_request(f"r{index}", 3, priority=priority, arrival_time=arrival_time)
    return Request(new, arrival_index=index, max_model_len=100)


def test_fcfs_is_the_order_of_arrival():
    queue = RequestQueue("fcfs")
    requests = [make(i, priority=-i) for i in range(4)]
    for request in requests:
        queue.add(request)
    assert list(queue) == requests
    queue.remove(requests[1])
    assert list(queue) == [requests[0], *requests[2:]]


def test_a_preempted_request_returns_to_the_front():
    queue = RequestQueue("fcfs")
    first, second, third, fourth = (make(i) for i in range(4))
    queue.add(third)
    queue.add(fourth)
    queue.add(second)
    queue.add(first)
    assert list(queue) == [first, second, third, fourth]


def test_priority_then_arrival():
    queue = RequestQueue("priority")
    late = make(0, priority=0, arrival_time=2.0)
    early = make(1, priority=0, arrival_time=1.0)
    tied = make(2, priority=0, arrival_time=1.0)
    urgent = make(3, priority=-1, arrival_time=9.0)
    for request in (late, tied, early, urgent):
        queue.add(request)
    assert list(queue) == [urgent, early, tied, late]


def test_random_removal_keeps_the_order():
    rng = random.Random(1)
    queue = RequestQueue("priority")
    inside: list[Request] = []
    for index in range(300):
        if inside and rng.random() < 0.4:
            queue.remove(inside.pop(rng.randrange(len(inside))))
        else:
            request = make(index, rng.randrange(3), float(rng.randrange(3)))
            inside.append(request)
            queue.add(request)
        assert list(queue) == sorted(inside, key=lambda r: r.priority_key)
        assert len(queue) == len(inside)


def test_victims():
    old, young = make(0, priority=5), make(1, priority=0)
    assert RequestQueue("fcfs").choose_victim([old, young]) is young
    assert RequestQueue("priority").choose_victim([young, old]) is old
    later = make(2, priority=5, arrival_time=1.0)
    assert RequestQueue("priority").choose_victim([later, old, young]) is later


def test_protected_requests_are_spared():
    old, young = make(0), make(1)
    young.preempt()
    young.reserve_until = 10
    assert RequestQueue("fcfs").choose_victim([old, young]) is old
    assert RequestQueue("fcfs").choose_victim([young]) is None


def serve(queue, verdicts, default=Verdict.LATER):
    """Serve once; returns who was asked."""
    asked = []

    def admit(request):
        asked.append(request.request_id)
        return verdicts.get(request.request_id, default)

    queue.serve(admit)
    return asked


def queue_of(count):
    queue = RequestQueue("fcfs")
    for index in range(count):
        queue.add(make(index))
    return queue


def test_admitted_requests_leave_the_queue():
    queue = queue_of(4)
    verdicts = {"r0": Verdict.ADMITTED, "r2": Verdict.ADMITTED}
    assert serve(queue, verdicts) == ["r0", "r1", "r2", "r3"]
    assert [request.request_id for request in queue] == ["r1", "r3"]


def test_nobody_is_asked_after_full():
    assert serve(queue_of(4), {"r1": Verdict.FULL}) == ["r0", "r1"]


def test_a_refused_request_is_passed_a_limited_number_of_times():
    queue = queue_of(3 * MAX_BYPASSES)
    verdicts = {"r0": Verdict.REFUSED}
    asked = serve(queue, verdicts, default=Verdict.ADMITTED)
    assert len(asked) == 1 + MAX_BYPASSES
    assert serve(queue, verdicts, default=Verdict.ADMITTED) == ["r0"]
    assert len(queue) == 2 * MAX_BYPASSES


def test_passing_is_counted_over_the_whole_wait():
    queue = queue_of(2)
    verdicts = {"r0": Verdict.REFUSED}
    for index in range(2, MAX_BYPASSES + 5):
        serve(queue, verdicts, default=Verdict.ADMITTED)
        queue.add(make(index))
    assert len(queue) == 1 + 4


def test_a_request_that_waits_for_its_own_good_may_be_passed_freely():
    queue = queue_of(3 * MAX_BYPASSES)
    serve(queue, {"r0": Verdict.LATER}, default=Verdict.ADMITTED)
    assert [request.request_id for request in queue] == ["r0"]


def test_looking_ahead_ends():
    assert len(serve(queue_of(LOOK_AHEAD + 50), {})) == LOOK_AHEAD + 1
