from __future__ import annotations

import pytest

from octavo.core.request import Request
from octavo.core.stop import check_stop
from octavo.types.engine_output import FinishReason
from unit.core.simulated_executor import EOS, make_request

STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


def after(tokens, *, max_tokens=10, max_model_len=100, eos=True, **params):
    """The verdict on the last of the output tokens."""
    new = make_request("a", 3, max_tokens, eos=eos, **params)
    request = Request(new, arrival_index=0, max_model_len=max_model_len)
    request.token_ids += tokens
    return check_stop(request, tokens[-1])


def test_an_ordinary_token_goes_on():
    assert after([1, 2]) is None


def test_eos_has_no_stop_token():
    assert after([EOS]) == (STOP, None)


def test_stop_token_names_itself():
    assert after([1, 30], stop_token_ids=[30]) == (STOP, 30)


def test_eos_comes_before_stop_token_ids():
    assert after([EOS], stop_token_ids=[EOS]) == (STOP, None)


def test_ignored_eos_can_still_be_a_stop_token():
    assert after([EOS], ignore_eos=True) is None
    assert after([EOS], ignore_eos=True, stop_token_ids=[EOS]) == (STOP, EOS)


@pytest.mark.parametrize("token", [EOS, 30])
def test_min_tokens_guards_against_both(token):
    options = {"min_tokens": 3, "stop_token_ids": [30]}
    assert after([token], **options) is None
    assert after([1, token], **options) is None
    assert after([1, 1, token], **options) is not None


def test_stopping_comes_before_length():
    assert after([1, EOS], max_tokens=2) == (STOP, None)
    assert after([1, 1], max_tokens=2) == (LENGTH, None)


def test_the_models_limit_ends_it_whatever_min_tokens_asks():
    assert after([1, EOS], max_model_len=5, min_tokens=8) == (LENGTH, None)
    assert after([1], max_model_len=5, min_tokens=8) is None
