"""The reference kernels of sampling: noise, draws, truncation, penalties, top logprobs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from octavo.kernels.reference import sampling as kernels
from support import sampling_oracle as oracle


def _keys(seeds: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    words = seeds.contiguous().view(torch.int32).view(-1, 2)
    return kernels.row_keys(words[:, 0], words[:, 1], positions.to(torch.int32))


def _seeds(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def _deviation(counts: torch.Tensor, expected: torch.Tensor) -> float:
    """Chi-squared, in standard deviations above what chance gives."""
    freedom = counts.numel() - 1
    chi_squared = ((counts - expected) ** 2 / expected).sum().item()
    return (chi_squared - freedom) / math.sqrt(2 * freedom)


# Noise


def test_noise_is_the_documented_hash() -> None:
    cases = [(0, 0), (1, 0), (-1, 5), (123456789, 7), (1 << 40, 131071), (-(1 << 63), 1)]
    seeds = _seeds(*(seed for seed, _ in cases))
    positions = torch.tensor([position for _, position in cases])
    keys = _keys(seeds, positions)
    mine = kernels.hash_tokens(keys, torch.arange(3000, dtype=torch.int32)[None])
    for row, (seed, position) in zip(mine, cases, strict=True):
        bits = oracle.hash_tokens(seed, position, 3000)
        assert np.array_equal(row.numpy().view(np.uint32), bits)
        assert bits.max() < 1 << 31


def test_noise_is_pinned() -> None:
    """Stored values: a change of the hash changes every seeded result ever given."""
    keys = _keys(_seeds(0x0123456789ABCDEF), torch.tensor([42]))
    bits = kernels.hash_tokens(keys, torch.tensor([[0, 1, 2, 151935]], dtype=torch.int32))
    assert [key.item() for key in keys] == [-371332903, 1177746716]
    assert bits.tolist() == [[1357027501, 393367182, 901674183, 1739405022]]


def test_exponentials_are_finite_at_both_ends() -> None:
    v = oracle.uniform(np.array([0, 1, (1 << 31) - 64, (1 << 31) - 1], np.uint32))
    assert v.min() > 0
    assert v.max() < 1
    noise = kernels.log_exponential(
        _keys(torch.arange(64), torch.arange(64)), torch.arange(20_000, dtype=torch.int32)[None]
    )
    assert noise.isfinite().all()
    assert noise.min() > -22.3
    assert noise.max() < 2.9
    assert noise.exp().mean().item() == pytest.approx(1.0, abs=5e-3)


def test_noise_of_a_row_is_the_same_in_any_batch() -> None:
    keys = _keys(torch.arange(64) * 977, torch.arange(64) * 31)
    ids = torch.arange(49_157, dtype=torch.int32)
    batch = kernels.log_exponential(keys, ids[None])
    for row in (0, 1, 33, 63):
        one = (keys[0][row : row + 1], keys[1][row : row + 1])
        assert torch.equal(kernels.log_exponential(one, ids[None])[0], batch[row])
        assert torch.equal(kernels.log_exponential(one, ids[None, 17:1000])[0], batch[row, 17:1000])


# Draws

PROBABILITIES = torch.tensor([0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.015, 0.005])
NUM_DRAWS = 40_000
DRAWS = {
    "positions": (torch.full((NUM_DRAWS,), 1234), torch.arange(NUM_DRAWS)),
    "seeds": (torch.arange(NUM_DRAWS), torch.full((NUM_DRAWS,), 17)),
    "high halves of seeds": (torch.arange(NUM_DRAWS) << 32, torch.full((NUM_DRAWS,), 17)),
    "both": (torch.arange(NUM_DRAWS), torch.arange(NUM_DRAWS)),
}


@pytest.mark.parametrize("over", list(DRAWS))
def test_draws_follow_the_softmax(over: str) -> None:
    logits = PROBABILITIES.log().expand(NUM_DRAWS, -1) + 3.0
    drawn = kernels.sample(logits, None, _keys(*DRAWS[over]))
    counts = torch.bincount(drawn, minlength=8).double()
    assert abs(_deviation(counts, PROBABILITIES.double() * NUM_DRAWS)) < 4


@pytest.mark.parametrize("over", list(DRAWS))
def test_neighbouring_draws_are_independent(over: str) -> None:
    drawn = kernels.sample(torch.zeros(NUM_DRAWS, 8), None, _keys(*DRAWS[over]))
    for distance in (1, 2, 64):
        pairs = drawn[distance:] * 8 + drawn[:-distance]
        counts = torch.bincount(pairs, minlength=64).double()
        assert abs(_deviation(counts, torch.full((64,), pairs.numel() / 64))) < 4


def test_draws_are_uniform_over_a_large_vocabulary() -> None:
    """Each of many tokens wins now and then: no structure in the token's share of the hash."""
    drawn = kernels.sample(torch.zeros(4000, 8192), None, _keys(*(d[:4000] for d in DRAWS["both"])))
    counts = torch.bincount(drawn // 64, minlength=128).double()
    assert abs(_deviation(counts, torch.full((128,), 4000 / 128))) < 4


def test_draw_equals_the_race_over_the_whole_row() -> None:
    torch.manual_seed(0)
    logits = torch.randn(9, 3 * kernels.CHUNK + 5)
    keys = _keys(torch.arange(9), torch.arange(9) + 100)
    ids = torch.arange(logits.shape[1], dtype=torch.int32)[None]
    expected = (logits - kernels.log_exponential(keys, ids)).argmax(dim=-1)
    assert torch.equal(kernels.sample(logits, None, keys), expected)
    index = torch.tensor([7, 2])
    some = (keys[0][index], keys[1][index])
    assert torch.equal(kernels.sample(logits, index, some), expected[index])


def test_lowest_id_wins_a_tie_of_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits so large that adding noise changes nothing, in two chunks."""
    monkeypatch.setattr(kernels, "CHUNK", 4)
    logits = torch.zeros(1, 12)
    logits[0, [2, 3, 9]] = 1e12
    keys = _keys(_seeds(1), torch.tensor([1]))
    assert kernels.sample(logits, None, keys).item() == 2
    top_k, top_p = torch.tensor([3]), torch.tensor([1.0])
    assert kernels.sample_truncated(logits, None, top_k, top_p, keys, 4).item() == 2


# Truncation


def _truncated(logits: torch.Tensor, top_k: int, top_p: float, candidates: int) -> torch.Tensor:
    x = logits.clone()
    rows = x.shape[0]
    k = torch.full((rows,), top_k or x.shape[1])
    kernels.truncate(x, None, k, torch.full((rows,), top_p), candidates)
    return x


def test_top_k_keeps_the_likeliest_and_what_equals_the_last() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, 2.0, 0.0, 2.0]])
    assert _truncated(logits, 1, 1.0, 6).isfinite().tolist() == [[False, True] + [False] * 4]
    kept = [[False, True, True, True, False, True]]
    for candidates in (1, 2, 3, 4, 6):
        assert _truncated(logits, 2, 1.0, candidates).isfinite().tolist() == kept


def test_top_p_keeps_the_smallest_nucleus() -> None:
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    for top_p, count in ((0.01, 1), (0.39, 1), (0.41, 2), (0.69, 2), (0.71, 3), (0.95, 4)):
        assert _truncated(logits, 0, top_p, 4).isfinite().sum() == count


def test_top_p_stops_when_it_is_just_reached() -> None:
    logits = torch.tensor([[1.0, 0.5, 0.25, 0.25]]).log()
    assert logits.exp().tolist() == [[1.0, 0.5, 0.25, 0.25]]  # halves are exact here
    assert _truncated(logits, 0, 0.5, 4).isfinite().sum() == 1
    assert _truncated(logits, 0, 0.75, 4).isfinite().sum() == 2


def test_top_p_is_a_share_of_what_top_k_left() -> None:
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    assert _truncated(logits, 2, 0.55, 3).isfinite().sum() == 1  # 0.4 of 0.7 is 0.57
    assert _truncated(logits, 0, 0.55, 4).isfinite().sum() == 2


@pytest.mark.parametrize("top_k", [0, 1, 7, 50, 400])
@pytest.mark.parametrize("top_p", [0.05, 0.9, 0.9999, 1.0])
def test_number_of_candidates_does_not_show(top_k: int, top_p: float) -> None:
    torch.manual_seed(1)
    logits = torch.randn(12, 1000) * torch.linspace(0.01, 8, 12)[:, None]
    logits[::2] = logits[::2].round(decimals=1)
    logits[3, 5:] = -torch.inf
    expected = _truncated(logits, top_k, top_p, 1000)
    keys = _keys(torch.arange(12), torch.arange(12))
    drawn = kernels.sample(expected, None, keys)
    for candidates in (1, 3, 51, 300):
        assert torch.equal(_truncated(logits, top_k, top_p, candidates), expected)
        k, p = torch.full((12,), top_k or 1000), torch.full((12,), top_p)
        raced = kernels.sample_truncated(logits, None, k, p, keys, candidates)
        assert torch.equal(raced, drawn)


def test_truncation_of_a_row_does_not_depend_on_the_others() -> None:
    torch.manual_seed(2)
    logits = torch.randn(64, 49_152)
    logits[::2] *= 6
    keys = _keys(torch.arange(64), torch.arange(64))
    top_k = torch.full((64,), 49_152)
    top_k[::3] = 40
    top_p = torch.linspace(0.1, 0.9, 64)
    drawn = kernels.sample_truncated(logits, None, top_k, top_p, keys, 256)
    for row in (0, 1, 2, 63):
        at = torch.tensor([row])
        some = (keys[0][at], keys[1][at])
        alone = kernels.sample_truncated(logits, at, top_k[at], top_p[at], some, 41)
        assert alone.item() == drawn[row].item()


def test_rows_without_a_number_do_not_stop_truncation() -> None:
    logits = torch.randn(4, 100)
    logits[0] = torch.nan
    logits[1] = -torch.inf
    logits[2, 3] = torch.nan
    k, p = torch.full((4,), 5), torch.full((4,), 0.5)
    keys = _keys(torch.arange(4), torch.arange(4))
    drawn = kernels.sample_truncated(logits, None, k, p, keys, 6)
    alone = kernels.sample_truncated(logits[3:], None, k[3:], p[3:], (keys[0][3:], keys[1][3:]), 6)
    assert drawn[3] == alone[0]
    assert kernels.finite_rows(logits).tolist() == [False, False, False, True]


def test_min_p_is_relative_to_the_likeliest() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.5, 0.3, 0.15, 0.05]]).log()
    kernels.apply_min_p(logits, None, torch.tensor([0.29, 0.0]).log())
    assert logits.isfinite().tolist() == [[True, True, True, False], [True] * 4]
    kernels.apply_min_p(logits, torch.tensor([1]), torch.tensor([0.0]))
    assert logits.isfinite().tolist() == [[True, True, True, False], [True] + [False] * 3]


# Edits


def test_penalties_match_a_loop() -> None:
    torch.manual_seed(3)
    logits = torch.randn(5, 50) * 4
    seen = torch.zeros(3, 50, dtype=torch.int32)
    seen[1, :10] = kernels.PROMPT_FLAG
    seen[1, 5:15] += 3
    seen[2, 7] = 1
    index, seen_rows = torch.tensor([4, 0]), torch.tensor([1, 2])
    penalties = torch.tensor([[1.5, 0.25, -1.0], [0.5, -2.0, 0.75]])
    drafts = (torch.tensor([[7, 7], [-1, 49]]), torch.tensor([[True, True], [False, True]]))
    expected = logits.clone()
    for u, row in enumerate(index.tolist()):
        repetition, frequency, presence = penalties[u].tolist()
        for token in range(50):
            word = seen[seen_rows[u], token].item()
            extra = sum(1 for d in range(2) if drafts[1][u, d] and drafts[0][u, d].item() == token)
            outputs = word % kernels.PROMPT_FLAG + extra
            value = logits[row, token].item()
            if word or extra:
                value = value / repetition if value > 0 else value * repetition
            expected[row, token] = value - frequency * outputs - presence * (outputs > 0)
    kernels.apply_penalties(logits, index, seen, seen_rows, penalties, drafts)
    torch.testing.assert_close(logits, expected)


def test_add_at_sums_what_names_a_token_twice() -> None:
    logits = torch.zeros(3, 4)
    ids = torch.tensor([[1, 1, 0], [2, 3, 0]])
    values = torch.tensor([[1.0, 2.0, 0.0], [-torch.inf, 5.0, 0.0]])
    kernels.add_at(logits, torch.tensor([2, 0]), ids, values)
    assert logits.tolist() == [[0, 0, -math.inf, 5], [0] * 4, [0, 3, 0, 0]]


def test_edits_reach_rows_of_wider_tensors() -> None:
    """Logits may be a slice of a padded vocabulary."""
    padded = torch.zeros(2, 10)
    kernels.add_at(padded[:, :4], None, torch.tensor([[3], [0]]), torch.ones(2, 1))
    kernels.keep_only(padded[:, :4], None, torch.ones(1, 4).bool(), torch.tensor([0, 0]))
    assert padded.sum() == 2
    assert padded[:, 4:].sum() == 0


# Logprobs


def test_greedy_takes_the_lowest_id_among_equals() -> None:
    assert kernels.greedy(torch.tensor([[1.0, 5.0, 5.0], [2.0, 2.0, 2.0]])).tolist() == [1, 0]


def test_top_logprobs_match_log_softmax() -> None:
    torch.manual_seed(4)
    logits = torch.randn(6, 300) * 5
    tokens = torch.tensor([0, 299, 5, 7, 11, int(logits[5].argmax())])
    ids, values, ranks = kernels.top_logprobs(logits, tokens, 8, True)
    expected = logits.log_softmax(-1)
    torch.testing.assert_close(values, expected.gather(1, ids))
    order = expected.argsort(dim=-1, descending=True)
    assert torch.equal(ids[:, 1:], order[:, :8])
    assert torch.equal(ids[:, 0], tokens)
    positions = (order == tokens[:, None]).nonzero()[:, 1] + 1
    assert torch.equal(ranks, positions)
    raw = kernels.top_logprobs(logits, tokens, 8, False)[1]
    torch.testing.assert_close(raw, logits.gather(1, ids))


@pytest.mark.parametrize("num_top", [1, 3, 5, 8])
def test_equal_logprobs_rank_by_id(num_top: int) -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0, 2.0, -1.0, 2.0, 1.0, -0.5]])
    ids, _, rank = kernels.top_logprobs(logits, torch.tensor([6]), num_top, True)
    assert ids[0, 1:].tolist() == [1, 3, 5, 2, 6, 0, 7, 4][:num_top]
    assert rank.item() == 5


def test_no_top_logprobs_give_the_token_alone() -> None:
    ids, values, rank = kernels.top_logprobs(torch.zeros(2, 4), torch.tensor([3, 0]), 0, True)
    assert ids.tolist() == [[3], [0]]
    torch.testing.assert_close(values, torch.full((2, 1), -math.log(4)))
    assert rank.tolist() == [4, 1]


def test_masks_bar_the_tokens_whose_bits_are_zero():
    logits = torch.arange(2 * 70, dtype=torch.float32).reshape(2, 70)
    masks = torch.zeros(1, 3, dtype=torch.int32)
    masks[0, 0] = 1 << 5
    masks[0, 1] = -(1 << 31)  # token 63
    masks[0, 2] = 1 << 2  # token 66
    before = logits.clone()
    kernels.keep_masked(logits, torch.tensor([1]), masks)
    assert torch.equal(logits[0], before[0])
    assert torch.isfinite(logits[1]).nonzero().flatten().tolist() == [5, 63, 66]
    assert torch.equal(logits[1, [5, 63, 66]], before[1, [5, 63, 66]])
