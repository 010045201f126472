from __future__ import annotations

import logging

import pytest

from octavo.types.engine_output import FinishReason
from unit.core.invariants import check_invariants
from unit.core.simulated_executor import VOCAB_SIZE, expected_output, make_driver, make_request


def prompt(start, length):
    return [start * 1000 + i for i in range(length)]


@pytest.fixture
def four():
    """A driver with four requests that have produced two tokens each."""
    driver = make_driver(depth=2)
    for index in range(4):
        driver.add(make_request(f"r{index}", prompt(index, 9), 12))
    while len(driver.tokens("r3")) < 2:
        driver.step()
    return driver


@pytest.mark.parametrize("fault", [-1, VOCAB_SIZE, VOCAB_SIZE + 5, "NaN logits"])
def test_a_bad_result_ends_one_request_only(four, fault, caplog):
    logger = logging.getLogger("octavo")
    logger.addHandler(caplog.handler)
    four.executor.faults["r1"] = fault
    four.run()
    logger.removeHandler(caplog.handler)
    received = four.received["r1"]
    assert received.finish_reason is FinishReason.ERROR
    assert str(fault) in received.stop_reason
    assert received.tokens == expected_output(four.requests["r1"])[0][: len(received.tokens)]
    for other in ("r0", "r2", "r3"):
        four.check_result(other)
    assert len([record for record in caplog.records if "r1" in record.getMessage()]) == 1
    check_invariants(four.scheduler)
    assert four.scheduler._kv.usage == 0


def test_without_a_vocabulary_size_any_32_bit_id_will_do():
    driver = make_driver(vocab_size=None)
    driver.add(make_request("a", 5, 1))
    driver.executor.faults["a"] = 10_000
    driver.run()
    assert driver.tokens("a") == [10_000]


def test_a_row_without_the_token_it_owes(four):
    four.launch()
    _, result = four.in_flight[-1]
    result.sampled_token_ids[2] = []
    four.run()
    assert four.received["r2"].finish_reason is FinishReason.ERROR
    assert four.received["r2"].stop_reason == "no token was sampled"
    four.check_result("r0")


def test_results_with_too_few_rows_are_an_error_of_the_device(four):
    four.launch()
    output, result = four.in_flight[0]
    del result.sampled_token_ids[-1]
    with pytest.raises(ValueError, match="zip"):
        four.scheduler.update_from_output(output, result)


def test_cached_tokens_come_with_the_first_output_only():
    driver = make_driver()
    for name in ("a", "b"):
        driver.add(make_request(name, prompt(1, 20), 3))
        driver.run()
    assert driver.received["a"].num_cached_tokens == 0
    assert driver.received["b"].num_cached_tokens == 16  # _receive checks that it came first


def test_prompt_logprobs_arrive_chunk_by_chunk():
    driver = make_driver(max_num_batched_tokens=8)
    driver.add(make_request("a", 20, 2, prompt_logprobs=1))
    lengths = []
    while driver.scheduler.has_requests():
        driver.step()
        lengths.append(len(driver.received["a"].prompt_logprob_tokens))
    assert lengths == [9, 17, 20, 20]
    driver.check_result("a")


def test_prompt_logprobs_of_a_single_token():
    driver = make_driver()
    driver.add(make_request("a", 1, 2, prompt_logprobs=0))
    driver.run()
    assert driver.received["a"].prompt_logprob_tokens == [None]


def test_nothing_is_said_about_a_chunk_without_news():
    driver = make_driver(max_num_batched_tokens=8)
    driver.add(make_request("a", 20, 2))
    driver.run()
    assert driver.received["a"].num_outputs == 2


def test_logprobs_end_with_the_tokens():
    tokens, _ = expected_output(make_request("a", 6, 12))
    driver = make_driver(num_drafts=5, draft_accuracy=1.0)
    driver.add(make_request("a", 6, 12, stop_token_ids=[tokens[3]], logprobs=1))
    driver.run()
    driver.check_result("a")
