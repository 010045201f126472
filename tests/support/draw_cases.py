"""Random draws of the Triton kernels beside the reference, for the interpreter and for GPUs."""

from __future__ import annotations

import torch

from octavo.kernels import penalties as penalty_kernels
from octavo.kernels import sample
from octavo.kernels.draw import draw
from octavo.kernels.reference import sampling as reference
from octavo.kernels.slot_tables import (
    NUM_FEATURES,
    NUM_WORDS,
    PENALTIES_WIDTH,
    Feature,
    Kind,
    SlotTables,
    Word,
)
from octavo.kernels.top_logprobs import top_logprobs

NAN, INF = float("nan"), float("inf")


def _choice(values: list[float], count: int) -> torch.Tensor:
    return torch.tensor(values)[torch.randint(len(values), (count,))]


def random_tables(num_slots: int, num_tokens: int, width: int = 16) -> SlotTables:
    """Every parameter and feature now and then; a row of the features' tables for each slot."""
    words = torch.zeros(num_slots, NUM_WORDS, dtype=torch.int32)
    floats = words.view(torch.float32)
    floats[:, Word.TEMPERATURE] = _choice([0.01, 0.3, 0.7, 1.0, 1.0, 2.0], num_slots)
    floats[:, Word.TOP_P] = _choice([1e-6, 0.1, 0.5, 0.9, 0.95, 0.9999, 1.0, 1.0, 1.0], num_slots)
    floats[:, Word.LOG_MIN_P] = _choice([0.0, 0.0, 0.0, 1e-4, 0.05, 0.5, 1.0], num_slots).log()
    top_k = _choice([2, 5, 20, 50, 300, 1500, 0, 0, 0, 0], num_slots).int()
    top_k[(top_k == 0) | (top_k > num_tokens)] = num_tokens
    words[:, Word.TOP_K] = top_k
    words[:, Word.SEED_LOW] = torch.randint(-(1 << 31), 1 << 31, (num_slots,)).int()
    words[:, Word.SEED_HIGH] = torch.randint(-(1 << 31), 1 << 31, (num_slots,)).int()
    words[:, Word.PROMPT_LEN] = 3
    cut = (top_k < num_tokens) | (floats[:, Word.TOP_P] < 1) | (floats[:, Word.LOG_MIN_P] > -INF)
    kind = torch.where(cut, Kind.TRUNCATED, Kind.WHOLE).int()
    greedy = torch.rand(num_slots) < 0.1
    kind[greedy] = Kind.GREEDY
    floats[greedy, Word.TEMPERATURE] = 1.0
    words[:, Word.KIND] = kind

    rows = torch.stack([torch.randperm(num_slots) for _ in Feature], dim=1).int()
    features = rows.masked_fill(torch.rand(num_slots, NUM_FEATURES) < 0.6, -1)
    seen = torch.randint(-6, 4, (num_slots, num_tokens)).clamp_(min=0).int()
    seen[torch.rand(num_slots, num_tokens) < 0.1] += reference.PROMPT_FLAG
    penalties = torch.zeros(num_slots, PENALTIES_WIDTH)
    penalties[:, 0] = _choice([0.5, 1.0, 1.1, 2.0], num_slots)
    penalties[:, 1] = _choice([-2.0, 0.0, 0.3], num_slots)
    penalties[:, 2] = _choice([-1.0, 0.0, 0.5], num_slots)
    bias_ids = torch.randint(num_tokens, (num_slots, width))
    bias_values = _choice([-100.0, -INF, 0.5, 30.0, 0.0], num_slots * width).view(-1, width)
    bias_ids[:, width // 2 :], bias_values[:, width // 2 :] = 0, 0.0
    ends = torch.randint(-1, num_tokens, (num_slots, width))
    return SlotTables(
        params=words,
        features=features,
        seen=seen,
        penalties=penalties,
        allowed=torch.rand(num_slots, num_tokens) < 0.3,
        bias_ids=bias_ids,
        bias_values=bias_values,
        min_tokens_ids=ends,
        min_tokens=torch.randint(0, 10, (num_slots, 1)),
    )


def on(tables: SlotTables, device: str) -> SlotTables:
    return SlotTables(*(getattr(tables, name).to(device) for name in SlotTables.__slots__))


def random_logits(num_rows: int, num_tokens: int, dtype: torch.dtype) -> torch.Tensor:
    """Peaked and flat rows, equals, barred tokens, and rows that can't be sampled from."""
    logits = torch.randn(num_rows, num_tokens) * _choice([0.01, 1.0, 3.0, 8.0], num_rows)[:, None]
    logits[torch.rand(num_rows) < 0.2] *= 0
    rounded = torch.rand(num_rows) < 0.3
    logits[rounded] = logits[rounded].round(decimals=1)
    logits[torch.rand(num_rows, num_tokens) < 0.02] = -INF
    few = torch.rand(num_rows) < 0.1
    logits[few, num_tokens // 3 :] = -INF
    logits = logits.to(dtype)
    if num_rows >= 16:
        logits[0, num_tokens // 2] = NAN
        logits[3] = -INF
        logits[5, num_tokens - 1] = INF
        logits[7] = -INF
        logits[7, num_tokens // 2] = 1.5
        logits[9] = -0.0
        logits[9, ::2] = 0.0
    return logits


def check_draw(
    num_rows: int,
    num_tokens: int,
    dtype: torch.dtype,
    device: str,
    *,
    edits: bool,
    tolerated: int = 0,
) -> None:
    """Tokens as the reference's; on a device that rounds logarithms otherwise, of most rows."""
    num_slots = num_rows + 5
    tables = random_tables(num_slots, num_tokens)
    wide = torch.full((num_rows, num_tokens + 8), NAN, dtype=dtype)
    wide[:, :num_tokens] = random_logits(num_rows, num_tokens, dtype)
    logits = wide[:, :num_tokens]
    slots = torch.randperm(num_slots)[:num_rows]
    positions = torch.randint(3, 12, (num_rows,)).int()
    expected, bad = reference.draw(logits, slots, positions, tables, edits=edits)
    given = wide.to(device)
    actual, actual_bad = draw(
        given[:, :num_tokens],
        slots.to(device),
        positions.to(device),
        on(tables, device),
        edits=edits,
    )
    assert torch.equal(given.cpu().nan_to_num(7.0), wide.nan_to_num(7.0))
    assert actual_bad.cpu().tolist() == bad.tolist()
    different = (actual.cpu() != expected).nonzero()[:, 0]
    assert len(different) <= tolerated, (different, tables.params[slots[different]])


def check_padding(num_tokens: int, device: str) -> None:
    """A slot that never held a request is greedy, and tables that nobody uses are not read."""
    words = torch.zeros(2, NUM_WORDS, dtype=torch.int32)
    words.view(torch.float32)[:, Word.TEMPERATURE] = 1.0
    ids, values = torch.empty(0, 0, dtype=torch.int64), torch.empty(0, 0)
    tables = SlotTables(
        params=words,
        features=torch.full((2, NUM_FEATURES), -1, dtype=torch.int32),
        seen=torch.empty(0, num_tokens, dtype=torch.int32),
        penalties=values,
        allowed=torch.empty(0, num_tokens, dtype=torch.bool),
        bias_ids=ids,
        bias_values=values,
        min_tokens_ids=ids,
        min_tokens=ids,
    )
    tables = on(tables, device)
    logits = torch.randn(3, num_tokens).to(device)
    slots = torch.tensor([1, 1, 0]).to(device)
    positions = torch.zeros(3, dtype=torch.int32, device=device)
    for edits in (False, True):
        token_ids, bad = draw(logits, slots, positions, tables, edits=edits)
        assert torch.equal(token_ids, logits.argmax(dim=-1))
        assert not bad.any()
    penalty_kernels.count_outputs(slots, token_ids, tables)


def check_rows_alone(num_rows: int, num_tokens: int, dtype: torch.dtype, device: str) -> None:
    """A row's token does not depend on the others, on its place or on what they make necessary."""
    tables = on(random_tables(num_rows, num_tokens), device)
    tables.features[: num_rows // 2] = -1
    logits = random_logits(num_rows, num_tokens, dtype).to(device)
    slots = torch.arange(num_rows, device=device)
    positions = slots.int() + 3
    batch, _ = draw(logits, slots, positions, tables, edits=True)
    plain, _ = draw(logits, slots, positions, tables, edits=False)
    unused = (tables.features == -1).all(dim=1)
    assert unused.any()
    assert torch.equal(plain[unused], batch[unused])
    order = torch.randperm(num_rows).to(device)
    shuffled, _ = draw(logits[order], slots[order], positions[order], tables, edits=True)
    assert torch.equal(shuffled, batch[order])
    for row in range(0, num_rows, max(num_rows // 3, 1)):
        one = slice(row, row + 1)
        alone, _ = draw(logits[one], slots[one], positions[one], tables, edits=True)
        assert torch.equal(alone, batch[one])


def check_penalties(num_rows: int, num_tokens: int, device: str) -> None:
    tables = random_tables(num_rows, num_tokens)
    logits = torch.randn(num_rows + 2, num_tokens) * 4
    index, seen_rows = torch.randperm(num_rows + 2)[:num_rows], torch.randperm(num_rows)
    drafts = torch.randint(-1, num_tokens, (num_rows, 3))
    there = (drafts >= 0) & (torch.rand(num_rows, 3) < 0.7)
    for extra in (None, (drafts, there)):
        expected, actual = logits.clone(), logits.to(device)
        given = (tables.seen, seen_rows, tables.penalties[:, :3])
        reference.apply_penalties(expected, index, *given, extra)
        moved = None if extra is None else (drafts.to(device), there.to(device))
        penalty_kernels.apply_penalties(
            actual, index.to(device), *(tensor.to(device) for tensor in given), moved
        )
        assert torch.equal(actual.cpu(), expected)

    slots, token_ids = torch.randperm(num_rows), torch.randint(num_tokens, (num_rows,))
    counted = on(tables, device)
    reference.count_outputs(slots, token_ids, tables)
    penalty_kernels.count_outputs(slots.to(device), token_ids.to(device), counted)
    assert torch.equal(counted.seen.cpu(), tables.seen)


def check_top_logprobs(num_rows: int, num_tokens: int, dtype: torch.dtype, device: str) -> None:
    logits = random_logits(num_rows, num_tokens, dtype)
    usable = reference.finite_rows(logits.float())
    token_ids = torch.randint(num_tokens, (num_rows,))
    for num_top, normalize in ((5, False), (40, True)):
        wanted = min(num_top, num_tokens)
        expected = reference.top_logprobs(logits, token_ids, wanted, normalize)
        actual = top_logprobs(logits.to(device), token_ids.to(device), wanted, normalize)
        ids, values, ranks = (tensor.cpu() for tensor in actual)
        assert ids.max() < num_tokens
        assert torch.equal(ids[usable], expected[0][usable])
        assert torch.equal(ranks[usable], expected[2][usable])
        torch.testing.assert_close(values[usable], expected[1][usable], rtol=1e-5, atol=2e-5)


def check_greedy(num_rows: int, num_tokens: int, dtype: torch.dtype, device: str) -> None:
    logits = torch.randn(num_rows + 3, num_tokens).to(device, dtype)
    assert torch.equal(sample.greedy(logits), logits.argmax(dim=-1))
    logits[0, num_tokens // 2] = NAN
    logits[1] = -INF
    logits[2, num_tokens - 1] = INF
    token_ids, bad = sample.greedy_checked(logits)
    assert bad.tolist() == [True] * 3 + [False] * num_rows
    assert not token_ids[:3].any()
    assert torch.equal(token_ids, reference.greedy_checked(logits)[0])
    ties = torch.zeros(num_rows, num_tokens, device=device)
    assert not sample.greedy(ties).any()
    ties[:, num_tokens // 3 :] = 1.0
    assert (sample.greedy(ties) == num_tokens // 3).all()
    nan = sample.greedy(torch.full_like(ties, NAN))
    assert ((nan >= 0) & (nan < num_tokens)).all()
