"""The sampler against a NumPy one, over random parameters, histories and batches."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch

from octavo.kernels.reference import sampling as reference
from octavo.sampling.interface import SamplingKernels
from octavo.sampling.logprob_tensors import LOGPROB_FLOOR
from octavo.sampling.sampler import Sampler
from support.sampling_oracle import sample_row
from support.sampling_requests import Driver, Sequence, draft_rows, make_state, random_params

# What a device with a kernel for it does, by the reference's functions.
DRAWING: SamplingKernels = SimpleNamespace(**{**vars(reference), "PREFERS_DRAW": True})

VOCAB = 40
SLOTS = 80
REQUESTS = 64


def _sequence(rng: random.Random, *, rare: bool = False) -> Sequence:
    prompt = [rng.randrange(8) for _ in range(rng.randint(1, 6))]
    outputs = [rng.randrange(6) for _ in range(rng.choice([0, 0, 1, 4]))]
    return Sequence(
        random_params(rng, VOCAB, rare=rare), prompt, rng.randrange(-(1 << 63), 1 << 63), outputs
    )


def _logits(rng: random.Random, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    logits = torch.randn(count, VOCAB, generator=generator) * 3
    logits[:, :6] += 3
    if rng.random() < 0.5:
        logits = logits.to(torch.bfloat16).float().round()  # many equals
    return logits


def _check(driver: Driver, slots: list[int], logits: torch.Tensor) -> None:
    expected = []
    for slot, row in zip(slots, logits.numpy(), strict=True):
        seq = driver.live[slot]
        expected.append(sample_row(row, seq.params, seq.prompt, seq.outputs, seq.seed, seq.mu))
    output = driver.step(slots, logits)
    assert output.row_errors == {}
    assert output.nan_rows.tolist() == [row.dead for row in expected]
    mine = output.token_ids.tolist()
    for r, row in enumerate(expected):
        assert mine[r] == row.token, driver.live[slots[r]]
        if not row.dead:
            assert driver.live[slots[r]].mu == pytest.approx(row.mu, abs=1e-3)


@pytest.mark.parametrize("part", range(6))
def test_ten_thousand_parameter_sets(part: int) -> None:
    """Half of them stage by stage, half by `draw` in the steps that allow it.

    And half as many more, most of them with parameters that few requests use.
    """
    rng = random.Random(part)
    kernels = DRAWING if part % 2 else reference
    for _ in range(40):
        driver = Driver(make_state(VOCAB, SLOTS, max_model_len=32, kernels=kernels))
        slots = rng.sample(range(SLOTS), REQUESTS)
        for slot in slots:
            driver.add(slot, _sequence(rng, rare=part >= 4 and rng.random() < 0.7))
        for _ in range(3):
            live = list(driver.live)
            batch = rng.sample(live, rng.choice([len(live), len(live) // 2]))
            _check(driver, batch, _logits(rng, len(batch)))
            free = list(set(range(SLOTS)) - set(live))
            for slot in rng.sample(live, 6):
                driver.preempt(slot, free.pop())
            for slot in rng.sample(list(driver.live), 3):
                driver.add(slot, _sequence(rng, rare=part >= 4))  # the slot goes to another request


@pytest.mark.parametrize("mode", ["processed_logits", "processed_logprobs"])
@pytest.mark.parametrize("kernels", [reference, DRAWING], ids=["stages", "draw"])
def test_processed_logits_are_those_sampled_from(mode: str, kernels: SamplingKernels) -> None:
    rng = random.Random(5)
    driver = Driver(make_state(VOCAB, SLOTS, max_model_len=32, logprobs_mode=mode, kernels=kernels))
    for slot in range(REQUESTS):
        sequence = _sequence(rng)
        sequence.params.logprobs = -1
        driver.add(slot, sequence)
    logits = _logits(rng, REQUESTS)
    output = driver.step(list(range(REQUESTS)), logits)
    assert output.logprobs is not None
    lists = output.logprobs.to_lists()
    for slot, row in enumerate(logits.numpy()):
        seq = driver.live[slot]
        expected = sample_row(row, seq.params, seq.prompt, seq.outputs[:-1], seq.seed)
        if expected.dead:
            continue
        assert output.token_ids[slot] == expected.token
        processed = torch.from_numpy(expected.processed)
        if mode == "processed_logprobs":
            processed = processed.log_softmax(0)
        values = torch.empty(VOCAB)
        values[lists[slot].token_ids[1:]] = torch.tensor(lists[slot].logprobs[1:])
        torch.testing.assert_close(values, processed.clamp(min=LOGPROB_FLOOR))


def test_chunks_of_the_vocabulary_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "CHUNK", 7)
    rng = random.Random(6)
    driver = Driver(make_state(VOCAB, SLOTS, max_model_len=32))
    for slot in range(REQUESTS):
        driver.add(slot, _sequence(rng))
    for _ in range(3):
        _check(driver, rng.sample(range(REQUESTS), REQUESTS), _logits(rng, REQUESTS))


def _drafted(
    rng: random.Random, seq: Sequence, logits: torch.Tensor
) -> tuple[list[int], list[int], int]:
    """Drafts for all but the last of logits[D + 1, V], the tokens to be drawn, how many count.

    Most drafts are what will be drawn. The sequence grows by the tokens that count.
    """
    drafts: list[int] = []
    tokens: list[int] = []
    mu, counting = seq.mu, True
    outputs = list(seq.outputs)
    for row in logits.numpy():
        found = sample_row(row, seq.params, seq.prompt, outputs + drafts, seq.seed, mu)
        mu = found.mu
        if counting:
            seq.outputs.append(found.token)
            seq.mu = mu
        tokens.append(found.token)
        if len(tokens) < len(logits):
            drafts.append(found.token if rng.random() < 0.7 else rng.randrange(6))
            counting &= drafts[-1] == found.token
            if drafts[-1] != found.token:
                mu = None  # of a text that will not be
    return drafts, tokens, len(seq.outputs) - len(outputs)


@pytest.mark.parametrize("rare", [False, True], ids=["common", "rare"])
@pytest.mark.parametrize("kernels", [reference, DRAWING], ids=["stages", "draw"])
def test_drafts_count_as_the_outputs_they_may_become(kernels: SamplingKernels, rare: bool) -> None:
    """Row j of a slot with drafts equals the oracle's row after j of them."""
    rng = random.Random(7)
    for _ in range(10):
        state = make_state(VOCAB, SLOTS, max_model_len=64, kernels=kernels)
        live = {slot: _sequence(rng, rare=rare) for slot in range(24)}
        for slot, seq in live.items():
            state.add(slot, seq.as_new(slot))
        for _ in range(3):
            all_drafts, expected, compared, accepted = [], [], [], []
            parts = []
            for slot, seq in live.items():
                position = len(seq.prompt + seq.outputs)
                parts.append(_logits(rng, rng.randint(1, 4)))
                drafts, tokens, kept = _drafted(rng, seq, parts[-1])
                all_drafts.append((slot, position, drafts))
                expected += tokens
                accepted += [row < kept for row in range(len(tokens))]
                # What mirostat makes of a text that will not be is nobody's business.
                known = kept if seq.params.mirostat_mode else len(tokens)
                compared += [row < known for row in range(len(tokens))]
            rows = draft_rows(all_drafts)
            state.flush()
            output = Sampler()(torch.cat(parts), rows, state)
            for token, wanted, counts in zip(
                output.token_ids.tolist(), expected, compared, strict=True
            ):
                assert token == wanted or not counts
            state.commit(rows, output.token_ids, torch.tensor(accepted))


def test_the_sets_cover_what_they_should() -> None:
    rng = random.Random(0)
    rare = [random_params(rng, VOCAB, rare=True) for _ in range(10_000)]
    assert any(p.dry_multiplier and p.mirostat_mode == 2 and p.dynatemp_range for p in rare)
    assert any(p.typical_p < 1 and p.top_p < 1 and p.xtc_probability and p.top_k for p in rare)
    sets = [random_params(rng, VOCAB) for _ in range(10_000)]
    assert any(p.top_k > VOCAB and p.top_p < 1 and p.min_p > 0 for p in sets)
    assert any(p.allowed_token_ids and p.bad_words_token_ids and p.logit_bias for p in sets)
    assert any(p.repetition_penalty < 1 and p.min_tokens and p.frequency_penalty < 0 for p in sets)
