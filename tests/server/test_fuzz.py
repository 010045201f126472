"""Requests made from the server's own description, right and wrong ones: none is answered 5xx."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from support.http_server import ServerThread

# Each answer is as short as it can be: what is looked for is in the reading of requests.
TOKENS = {"max_tokens": 2, "max_completion_tokens": 2, "max_output_tokens": 2}


def fuzz(url, examples):
    """Send requests to every operation; what failed."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    quiet = settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    failures = []
    for found in schema.get_all_operations():
        operation = found.ok()

        @quiet
        @given(case=operation.as_strategy())
        def check(case):
            if isinstance(case.body, dict):
                case.body.update({k: v for k, v in TOKENS.items() if k in case.body})
                case.body.pop("vllm_xargs", None)
            reply = case.call(base_url=url)
            if reply.status_code >= 500:
                failures.append((case.operation.label, reply.status_code, reply.text, case.body))

        check()
    return failures


@pytest.mark.parametrize("examples", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_no_request_is_a_server_error(examples):
    server = ServerThread()
    try:
        assert fuzz(server.url, examples) == []
    finally:
        server.stop()
