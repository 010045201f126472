"""Several API processes before one core: one address, sums in the metrics, one fate."""

import asyncio
import json
import os
import signal

import httpx
import psutil
import pytest

from support.completions import complete
from support.http_server import metric, wait_until
from support.processes import leftovers
from support.served_process import ServedProcess
from support.tiny import tiny_folder

ADMIN = {"authorization": "Bearer root"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where temporary files go."""
    tiny_folder()
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def served(folder):
    flags = ("--load-format", "dummy", "--port", "0", "--max-model-len", "512")
    served = ServedProcess(
        tiny_folder(),
        *flags,
        *("--api-server-count", "2", "--admin-api-key", "root", "--metrics-prefix", "vllm"),
        env=os.environ | {"TMPDIR": str(folder)},
    )
    try:
        served.wait_until_ready()
        yield served
    finally:
        served.stop()


def test_every_process_shows_the_sums(served):
    before = metric(served.url, "generation_tokens_total")
    for _ in range(12):  # a new connection each
        complete(served.url, prompt="a", max_tokens=5, ignore_eos=True)
    for _ in range(4):
        assert metric(served.url, "generation_tokens_total") == before + 60
        assert metric(served.url, "request_success_total") is not None
    text = httpx.get(f"{served.url}/metrics").text
    assert "vllm:num_requests_running" in text
    assert "octavo:" not in text


def test_answers_do_not_get_mixed_up(served):
    async def one(client, number):
        body = {"prompt": f"{number}", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        reply = await client.post("/v1/completions", json=body)
        return reply.json()["choices"][0]["text"]

    async def together():
        limits = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(base_url=served.url, limits=limits, timeout=60) as client:
            return await asyncio.gather(*(one(client, number) for number in range(40)))

    alone = [complete(served.url, prompt=f"{n}", max_tokens=8, ignore_eos=True) for n in range(40)]
    assert asyncio.run(together()) == [reply["choices"][0]["text"] for reply in alone]


def test_any_process_ends_a_request_of_any_other(served):
    headers = {"x-request-id": "mine"}
    body = {"prompt": "a", "max_tokens": 500, "ignore_eos": True, "stream": True, "n": 4}
    with httpx.stream(
        "POST", f"{served.url}/v1/completions", json=body, headers=headers, timeout=60
    ) as reply:
        lines = (line for line in reply.iter_lines() if line)
        next(lines)
        for _ in range(6):  # at least one of them comes to the other process
            told = httpx.post(
                f"{served.url}/abort_requests", json={"request_ids": ["cmpl-mine"]}, headers=ADMIN
            )
            assert told.status_code == 200
        rest = list(lines)
    assert sum('"finish_reason":"abort"' in line for line in rest) == 4
    wait_until(lambda: metric(served.url, "num_requests_running") == 0, "nothing runs")


def test_a_response_is_found_by_every_process(served):
    body = {"input": "a", "max_output_tokens": 2}
    stored = httpx.post(f"{served.url}/v1/responses", json=body, timeout=60).json()
    for _ in range(8):
        reply = httpx.get(f"{served.url}/v1/responses/{stored['id']}")
        assert reply.json()["output"] == stored["output"]


def test_events_of_a_background_response_are_read_through_any_process(served):
    body = {"input": "a", "max_output_tokens": 200, "background": True, "temperature": 0}
    # Each by a new connection, which either of the processes may get.
    made = httpx.post(f"{served.url}/v1/responses", json=body, timeout=60).json()
    url = f"{served.url}/v1/responses/{made['id']}?stream=true"
    streams = [httpx.get(url, timeout=60).text for _ in range(6)]
    assert len(set(streams)) == 1, "those while it is written and those after it"
    events = [json.loads(line[6:]) for line in streams[0].split("\n") if line[:5] == "data:"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["response"]["status"] in ("completed", "incomplete")
    for _ in range(6):
        rest = httpx.get(f"{url}&starting_after={len(events) - 3}", timeout=60).text
        assert streams[0].endswith(rest)
        assert rest.count("event: ") == 2
    for _ in range(6):
        httpx.delete(url.partition("?")[0])
        assert httpx.get(url).status_code == 404


def test_they_end_together_and_leave_nothing(served, folder):
    children = served.children()
    assert len(children) == 3
    assert served.stop() == 0, "".join(served.log[-20:])
    assert not any(child.is_running() for child in children)
    assert leftovers(folder) == []
    assert not any("Traceback" in line for line in served.log)


def start_two(folder):
    served = ServedProcess(
        *(tiny_folder(), "--load-format", "dummy", "--port", "0", "--api-server-count", "2"),
        env=os.environ | {"TMPDIR": str(folder)},
    )
    served.wait_until_ready()
    return served


@pytest.mark.parametrize("victim", ["octavo.engine.core_proc", "api_process"])
def test_the_death_of_one_ends_all_with_the_cause(folder, victim):
    served = start_two(folder)
    children = served.children()
    (first, *_) = [c for c in children if any(victim in word for word in c.cmdline())]
    first.send_signal(signal.SIGKILL)
    assert served.wait() == 1
    assert "engine" in served.log[-1] or "API process" in served.log[-1]
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    assert leftovers(folder) == []


def test_a_killed_supervisor_takes_them_along(folder):
    served = start_two(folder)
    children = served.children()
    served.process.kill()
    served.process.wait()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
