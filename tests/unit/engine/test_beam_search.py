"""BeamSearch: which beams are kept, how ends score, when a search may stop."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from octavo.engine.beam_search import Beam, BeamSearch, step_params
from octavo.types.beam_search import BeamSearchParams
from octavo.types.errors import GenerationError, RequestError
from octavo.types.outputs import CompletionOutput, Logprob, RequestOutput

VOCAB, EOS = 7, 6


def _logprobs(tokens: list[int]) -> np.ndarray:
    """A made-up model: the log-probabilities after any tokens."""
    weights = np.random.default_rng([len(tokens), *tokens]).normal(size=VOCAB) * 2
    return weights - np.log(np.exp(weights).sum())


def _answer(tokens: list[int], count: int) -> RequestOutput:
    logprobs = _logprobs(tokens)
    best = np.argsort(-logprobs)[:count]
    entry = {
        int(token): Logprob(float(logprobs[token]), rank) for rank, token in enumerate(best, 1)
    }
    completion = CompletionOutput(0, "", [int(best[0])], logprobs=[entry], finish_reason="length")
    return RequestOutput("", None, tokens, [completion], True)


def _run(params: BeamSearchParams, prompt: list[int]) -> tuple[list[CompletionOutput], int]:
    search = BeamSearch(prompt, params, [EOS], 100)
    steps = 0
    while search.live:
        search.advance([_answer(tokens, 2 * params.beam_width) for tokens in search.prompts()])
        steps += 1
    return search.results(None, skip_special=True), steps


def _score(tokens: tuple[int, ...], total: float, penalty: float) -> float:
    length = len(tokens) - (tokens[-1] == EOS)
    return total / max(length, 1) ** penalty


@pytest.mark.parametrize("penalty", [0.5, 1.0, 2.0, 0.0, -1.0])
def test_a_search_as_wide_as_all_texts_finds_the_best_of_all(penalty: float) -> None:
    prompt, longest = [1, 2], 3
    params = BeamSearchParams(beam_width=VOCAB**longest, max_tokens=longest, length_penalty=penalty)
    everything = []
    for length in range(1, longest + 1):
        for tokens in itertools.product(range(VOCAB), repeat=length):
            whole = tokens[-1] == EOS or length == longest
            if EOS in tokens[:-1] or not whole:
                continue
            total = sum(
                _logprobs([*prompt, *tokens[:place]])[token] for place, token in enumerate(tokens)
            )
            everything.append((_score(tokens, total, penalty), tokens))
    everything.sort(reverse=True)
    found, _ = _run(params, prompt)
    assert [tuple(each.token_ids) for each in found[:20]] == [t for _, t in everything[:20]]
    assert found[0].cumulative_logprob is not None


@pytest.mark.parametrize("penalty", [-1.0, 0.0, 0.7, 1.0, 2.0])
def test_stopping_early_changes_no_result(penalty: float, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = 0
    for start in range(20):
        params = BeamSearchParams(beam_width=3, max_tokens=25, length_penalty=penalty)
        early, num_early = _run(params, [start])
        with monkeypatch.context() as patch:
            patch.setattr(BeamSearch, "_can_improve", lambda self: True)
            late, num_late = _run(params, [start])
        assert early == late
        saved += num_late - num_early
    if penalty <= 0:
        assert saved > 0


def test_the_length_of_the_prompt_plays_no_part() -> None:
    """With 1000 prompt tokens a short and a long text rank as the formula for outputs says."""
    short, long = Beam((1, 2, EOS), -2.0, "stop"), Beam((1,) * 9, -5.0, "length")
    assert short.score(0.5) == pytest.approx(-2.0 / math.sqrt(2))
    assert short.score(0.5) > long.score(0.5)
    assert short.score(2.0) == pytest.approx(-0.5)
    assert short.score(2.0) < long.score(2.0)
    for penalty in (0.5, 2.0):
        params = BeamSearchParams(beam_width=4, max_tokens=6, length_penalty=penalty)
        for prompt in ([3], [3] * 90):
            scores = [
                _score(tuple(each.token_ids), each.cumulative_logprob or 0.0, penalty)
                for each in _run(params, prompt)[0]
            ]
            assert scores == sorted(scores, reverse=True)


def test_ends_can_be_ignored_and_room_limits_the_length() -> None:
    params = BeamSearchParams(beam_width=2, max_tokens=9, ignore_eos=True)
    found, _ = _run(params, [1])
    assert all(len(each.token_ids) == 9 and each.finish_reason == "length" for each in found)
    search = BeamSearch([1] * 98, params, [EOS], 100)
    while search.live:
        search.advance([_answer(tokens, 4) for tokens in search.prompts()])
    assert {len(each.token_ids) for each in search.results(None, skip_special=True)} == {2}


def test_what_cannot_be_searched_is_refused() -> None:
    params = BeamSearchParams(beam_width=11, max_tokens=2)
    with pytest.raises(RequestError, match="22 likeliest"):
        step_params(params, 20)
    assert step_params(params, -1).logprobs == 22
    for prompt in ([], [1] * 100):
        with pytest.raises(RequestError, match="room"):
            BeamSearch(prompt, params, [EOS], 100)
    for fields in ({"beam_width": 0}, {"max_tokens": 0}, {"length_penalty": math.nan}):
        with pytest.raises(RequestError):
            BeamSearchParams(**{"beam_width": 1, "max_tokens": 1} | fields)


def test_a_beam_whose_request_failed_ends_the_search() -> None:
    search = BeamSearch([1], BeamSearchParams(beam_width=1, max_tokens=2), [EOS], 100)
    broken = _answer([1], 2)
    broken.outputs[0].finish_reason, broken.error = "error", "NaN"
    with pytest.raises(GenerationError, match="NaN"):
        search.advance([broken])
