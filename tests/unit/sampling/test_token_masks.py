"""Masks from the host: barred tokens never come, raw logprobs do not see the masks."""

from __future__ import annotations

import pytest
import torch

from octavo.kernels.reference import sampling as reference
from octavo.sampling.sampler import Sampler
from octavo.sampling.token_masks import TokenMasks
from octavo.types.sampling_params import SamplingParams
from support.sampling_requests import Driver, Sequence, make_rows, make_state

VOCAB = 70
ALLOWED = (3, 40, 64, 69)


def masks_for(*rows: int) -> TokenMasks:
    words = torch.zeros(len(rows), 3, dtype=torch.int32)
    for token in ALLOWED:
        bit = 1 << (token % 32)
        words[:, token // 32] |= bit - (1 << 32) if bit == 1 << 31 else bit
    return TokenMasks(torch.tensor(rows), words)


@pytest.mark.parametrize("draws", [False, True])
@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.0},
        {"temperature": 2.0},
        {"temperature": 1.0, "top_k": 3, "top_p": 0.9},
        {"temperature": 1.5, "logit_bias": {5: 100.0}, "frequency_penalty": 2.0},
        {"temperature": 1.0, "bad_words_token_ids": [[1, 40]], "min_p": 0.2},
    ],
)
def test_only_allowed_tokens_come_and_other_rows_are_free(monkeypatch, draws, params):
    monkeypatch.setattr(reference, "PREFERS_DRAW", draws)
    torch.manual_seed(0)
    state = make_state(VOCAB)
    driver = Driver(state)
    for slot in range(3):
        driver.add(slot, Sequence(SamplingParams(**params), [1], slot))
    state.flush()
    for _ in range(20):
        logits = torch.randn(3, VOCAB)
        rows = make_rows([0, 1, 2], [1, 1, 1])
        free = Sampler()(logits.clone(), rows, state).token_ids
        bound = Sampler()(logits.clone(), rows, state, masks_for(0, 2)).token_ids
        assert bound[1] == free[1]
        assert {int(bound[0]), int(bound[2])} <= set(ALLOWED)


@pytest.mark.parametrize("draws", [False, True])
@pytest.mark.parametrize("mode", ["raw_logprobs", "processed_logprobs"])
def test_logprobs_are_of_the_logits_that_the_mode_names(monkeypatch, draws, mode):
    monkeypatch.setattr(reference, "PREFERS_DRAW", draws)
    torch.manual_seed(1)
    state = make_state(VOCAB, logprobs_mode=mode)
    Driver(state).add(0, Sequence(SamplingParams(temperature=0.0, logprobs=2), [1], 0))
    state.flush()
    logits = torch.randn(1, VOCAB)
    expected = logits.clone()
    if mode == "processed_logprobs":
        reference.keep_masked(expected, torch.tensor([0]), masks_for(0).masks)
    output = Sampler()(logits, make_rows([0], [1]), state, masks_for(0))
    assert output.logprobs is not None
    (entry,) = output.logprobs.to_lists().values()
    best = expected[0].log_softmax(0).topk(2)
    assert entry.token_ids[1:] == best.indices.tolist()
    assert entry.logprobs[1:] == pytest.approx(best.values.tolist())
    assert entry.token_ids[0] == int(output.token_ids[0]) in ALLOWED
