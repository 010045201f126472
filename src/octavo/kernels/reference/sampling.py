"""Sampling in plain PyTorch: noise, exponential race, truncation, penalties, top logprobs.

Shapes: R rows of logits, V tokens, U rows that a call works on. `index[U]` names those rows and
None stands for all of them in order, which saves a gather. Logits are float32 and are edited in
place. Every result is a function of its own row only, bit for bit: reductions along the
vocabulary use operators that PyTorch never splits over threads (softmax, cumsum, topk, amax).

The noise of a token is a pure function of (64-bit seed, position, token id). With 32-bit
arithmetic that wraps, `>>>` the logical and `>>` the arithmetic shift:

    mix(x):  x ^= x >>> 16;  x *= 0x7FEB352D;  x ^= x >>> 15;  x *= 0x846CA68B;  x ^= x >>> 16
    key1   = mix(mix(mix(position + 0x9E3779B9) ^ seed_low) ^ seed_high)
    key2   = mix(mix(mix(position + 0x3C6EF372) ^ seed_high) ^ seed_low)
    x      = (token * 0x9E3779B1) ^ key1
    x      = (x ^ (x >> 16)) * 0x7FEB352D
    x      = ((x ^ (x >> 15)) ^ key2) * 0x846CA68B
    h      = x ^ (x >> 16)                        # bit 31 is now 0: 31 uniform bits
    v      = (float32(h) + 0.5) * 0x1.fffffep-32  # 2^-31 less one ulp, so that 0 < v < 1
    E      = -log1p(-v)                           # exponential with mean 1

and the token is argmax(logits / temperature - log E), the exponential race: it draws from the
softmax. `mix` is "lowbias32" of the hash-prospector project (C. Wellons, public domain). Inside
the loop over tokens the arithmetic shift saves a mask; the fold loses one bit, which makes x and
~x alike, and the multiplier keeps such pairs more than 2^31 token ids apart.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from octavo.kernels.slot_tables import Feature, Kind, SlotTables, Word

# Whether `draw` is the quickest way to tokens. It is not here: it takes every row through every
# stage, where octavo.sampling.sampler knows which rows need one.
PREFERS_DRAW = False

# In a table of seen tokens: the token is in the prompt; lower bits count its outputs.
PROMPT_FLAG = 1 << 30

# Columns worked on at a time: few enough for the passes over a chunk to find it in the caches,
# many enough for one row not to spend its time on calls.
CHUNK = 8192

_MIX_1 = 0x7FEB352D
_MIX_2 = 0x846CA68B - (1 << 32)
_TOKEN_STEP = 0x9E3779B1 - (1 << 32)
_KEY_1 = 0x9E3779B9 - (1 << 32)
_KEY_2 = 0x3C6EF372
_V_SCALE = float.fromhex("0x1.fffffep-32")


def row_keys(seed_low: Tensor, seed_high: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """The two noise keys of each row; every argument and result is [U] int32."""
    key_1 = _mix(_mix(_mix(positions + _KEY_1) ^ seed_low) ^ seed_high)
    key_2 = _mix(_mix(_mix(positions + _KEY_2) ^ seed_high) ^ seed_low)
    return key_1, key_2


def hash_tokens(keys: tuple[Tensor, Tensor], token_ids: Tensor) -> Tensor:
    """31 uniform bits per (row, token): token_ids[U or 1, C] int32 -> [U, C] int32."""
    x = (token_ids * _TOKEN_STEP) ^ keys[0][:, None]
    shifted = x >> 16
    x ^= shifted
    x *= _MIX_1
    torch.bitwise_right_shift(x, 15, out=shifted)
    x ^= shifted
    x ^= keys[1][:, None]
    x *= _MIX_2
    torch.bitwise_right_shift(x, 16, out=shifted)
    x ^= shifted
    return x


def log_exponential(keys: tuple[Tensor, Tensor], token_ids: Tensor) -> Tensor:
    """log E of each (row, token): [U, C] float32, between -22.2 and 2.9."""
    noise = hash_tokens(keys, token_ids).to(torch.float32)
    noise.add_(0.5).mul_(-_V_SCALE)
    return noise.log1p_().neg_().log_()


def uniform(bits: Tensor) -> Tensor:
    """31 bits, as int32 -> v in (0, 1), float32."""
    return bits.to(torch.float32).add_(0.5).mul_(_V_SCALE)


def greedy(logits: Tensor) -> Tensor:
    """[R] int64: the highest logit of each row; the lowest id among equals."""
    return logits.argmax(dim=-1)


def finite_rows(logits: Tensor) -> Tensor:
    """[R] bool: whether the row has a largest logit that is a number (no NaN, no +inf in it)."""
    return logits.amax(dim=-1).isfinite()


def greedy_checked(logits: Tensor) -> tuple[Tensor, Tensor]:
    """greedy(logits[R, V]) and [R] bool: the rows whose highest logit is not a finite number.

    Those get token 0. Any float dtype.
    """
    bad = ~finite_rows(logits)
    return greedy(logits).masked_fill_(bad, 0), bad


def sample(logits: Tensor, index: Tensor | None, keys: tuple[Tensor, Tensor]) -> Tensor:
    """[U] int64: one draw per row from softmax(logits), by the exponential race.

    The chunks' winners are compared as they come; a later one must be strictly better, so that
    the lowest id wins a tie.
    """
    num_rows = logits.shape[0] if index is None else index.shape[0]
    best = logits.new_full((num_rows,), -torch.inf)
    token_ids = torch.zeros(num_rows, dtype=torch.int64, device=logits.device)
    for start, stop in _chunks(logits.shape[1]):
        ids = torch.arange(start, stop, dtype=torch.int32, device=logits.device)
        noise = log_exponential(keys, ids[None, :])
        score = torch.sub(_take(logits[:, start:stop], index), noise, out=noise)
        top, where = score.max(dim=-1)
        better = top > best
        best = torch.where(better, top, best)
        token_ids = torch.where(better, where + start, token_ids)
    return token_ids


def sample_truncated(
    logits: Tensor,
    index: Tensor | None,
    top_k: Tensor,
    top_p: Tensor,
    keys: tuple[Tensor, Tensor],
    num_candidates: int,
) -> Tensor:
    """[U] int64: one draw per row after top-k and top-p, equal to truncating and then `sample`.

    The noise belongs to the token id, so racing the surviving candidates alone gives the token
    that racing the whole masked row would. Arguments as for `truncate`.
    """
    token_ids = torch.zeros(top_k.shape[0], dtype=torch.int64, device=logits.device)
    pieces = _candidates(_take(logits, index), top_k, top_p, num_candidates)
    for rows, values, ids, threshold in pieces:
        row_key = (_take(keys[0], rows), _take(keys[1], rows))
        score = values - log_exponential(row_key, ids.to(torch.int32))
        score.masked_fill_(values < threshold, -torch.inf)
        lost = score < score.amax(dim=-1, keepdim=True)
        winner = ids.masked_fill(lost, logits.shape[1]).amin(dim=-1)
        token_ids = winner if rows is None else token_ids.index_copy_(0, rows, winner)
    return token_ids


def truncate(
    logits: Tensor, index: Tensor | None, top_k: Tensor, top_p: Tensor, num_candidates: int
) -> None:
    """Set to -inf what top-k, then top-p, leave out.

    top_k[U] int64 is in [1, V] (V: off), top_p[U] float32 in (0, 1] (1: off). Tokens as likely
    as the last one kept are kept too, so the outcome does not depend on the order of equals.

    `num_candidates` is how many of the likeliest tokens to look at first; rows for which they
    turn out too few are looked at again with more. Finding that out reads a flag back from the
    device: pass V where that must not happen.
    """
    rows_logits = _take(logits, index)
    threshold = torch.full_like(top_p, -torch.inf)[:, None]
    for rows, _, _, found in _candidates(rows_logits, top_k, top_p, num_candidates):
        threshold = found if rows is None else threshold.index_copy_(0, rows, found)
    _mask(logits, index, rows_logits, rows_logits < threshold)


def apply_min_p(logits: Tensor, index: Tensor | None, log_min_p: Tensor) -> None:
    """Set to -inf the tokens less likely than exp(log_min_p[U]) times their row's likeliest."""
    rows_logits = _take(logits, index)
    threshold = rows_logits.amax(dim=-1) + log_min_p
    _mask(logits, index, rows_logits, rows_logits < threshold[:, None])


def apply_penalties(
    logits: Tensor,
    index: Tensor | None,
    seen: Tensor,
    seen_rows: Tensor,
    penalties: Tensor,
    drafts: tuple[Tensor, Tensor] | None,
) -> None:
    """Repetition, then frequency, then presence penalty.

    seen: [C, V] int32, PROMPT_FLAG where the token is in the prompt plus its count of outputs;
    seen_rows: [U] int64, the rows of `seen`; penalties: [U, 3] float32 in the order above;
    drafts: (token ids [U, D] int64, [U, D] bool where one is there), outputs of the rows that
    `seen` does not count yet.

    A token of prompt or output has its logit divided by the repetition penalty if positive, else
    multiplied (Keskar et al. 2019, "CTRL"); an output token then loses frequency * count and
    presence.
    """
    repetition, frequency, presence = penalties[:, :, None].unbind(dim=1)
    for start, stop in _chunks(logits.shape[1]):
        counts = seen[:, start:stop].index_select(0, seen_rows)
        if drafts is not None:
            token_ids, there = drafts
            inside = there & (token_ids >= start) & (token_ids < stop)
            columns = (token_ids - start).clamp_(0, stop - start - 1)
            counts.scatter_add_(1, columns, inside.to(counts.dtype))
        x = _take(logits[:, start:stop], index)
        repeated = torch.where(x > 0, x / repetition, x * repetition)
        x = torch.where(counts != 0, repeated, x)
        counts &= PROMPT_FLAG - 1
        x -= frequency * counts
        x -= presence * (counts > 0)
        _put(logits[:, start:stop], index, x)


def add_at(logits: Tensor, index: Tensor | None, token_ids: Tensor, values: Tensor) -> None:
    """logits[row u, token_ids[u, w]] += values[u, w]; token_ids [U, W] int64, values [U, W].

    A token may be named more than once: what is added is then the sum.
    """
    rows = torch.arange(logits.shape[0], device=logits.device) if index is None else index
    logits.index_put_((rows[:, None], token_ids), values, accumulate=True)


def keep_only(logits: Tensor, index: Tensor | None, allowed: Tensor, allowed_rows: Tensor) -> None:
    """Set to -inf the tokens that are False in allowed[C, V], at its rows allowed_rows[U]."""
    _mask(logits, index, _take(logits, index), ~allowed.index_select(0, allowed_rows))


def keep_masked(logits: Tensor, index: Tensor, masks: Tensor) -> None:
    """Set to -inf, in the rows index[U] of logits[R, V], the tokens whose bits are 0.

    masks[U, ceil(V / 32)] int32: bit t % 32 of word t // 32 is that of token t.
    """
    if index.shape[0] == logits.shape[0]:
        masks = torch.empty_like(masks).index_copy_(0, index, masks)
    shifts = torch.arange(8, dtype=torch.uint8, device=masks.device)
    octets = torch.arange(256, device=masks.device).to(torch.uint8)
    barred_by_octet = (octets[:, None] >> shifts).bitwise_and_(1) == 0  # [256, 8]
    # Adding 0 or -inf: several times as fast on a CPU as writing where a mask says.
    added = logits.new_zeros(256, 8).masked_fill_(barred_by_octet, -torch.inf)
    places = masks.contiguous().view(torch.uint8).to(torch.int32).flatten()
    bias = added.index_select(0, places).view(masks.shape[0], -1)[:, : logits.shape[1]]
    if index.shape[0] == logits.shape[0]:
        logits.add_(bias)
    else:
        logits.index_add_(0, index, bias)


def top_logprobs(
    logits: Tensor, token_ids: Tensor, num_top: int, normalize: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The chosen tokens' and the top tokens' logprobs: logits[L, V], token_ids[L] int64.

    Returns (ids [L, 1 + num_top] int64, values [L, 1 + num_top] float32, rank [L] int64): the
    chosen token first, then the best in order; the rank of the chosen token starts at 1. Equal
    logits rank by lower id. The values are log_softmax(logits), or the logits themselves when
    not `normalize`.
    """
    logits = logits.float()
    scores = logits.log_softmax(dim=-1) if normalize else logits
    # Float bits turned into integers of the same order, then the id below: a total order. Adding
    # 0.0 makes one zero of the two.
    keys = (logits + 0.0).view(torch.int32)
    keys ^= (keys >> 31).bitwise_and_(0x7FFFFFFF)
    order = keys.to(torch.int64)
    del keys
    order <<= 32
    order += torch.arange(logits.shape[1] - 1, -1, -1, device=logits.device)
    chosen = token_ids[:, None]
    rank = (order > order.gather(1, chosen)).sum(dim=-1) + 1
    top = logits.shape[1] - 1 - (order.topk(num_top, dim=-1).values & 0xFFFFFFFF)
    ids = torch.cat([chosen, top], dim=1)
    return ids, scores.gather(1, ids), rank


def draw(
    logits: Tensor, slots: Tensor, positions: Tensor, tables: SlotTables, *, edits: bool
) -> tuple[Tensor, Tensor]:
    """Tokens [R] int64 and the rows [R] bool whose largest logit is not a finite number (token 0).

    Stages 2 to 16 of docs/sampling.md but for bad words and plug-ins, or without `edits` from
    temperature on, of logits[R, V] for slots[R] at positions[R]. The logits are only read.
    """
    num_tokens = logits.shape[1]
    words = tables.params.index_select(0, slots.to(torch.int64))
    floats = words.view(torch.float32)
    kind = words[:, Word.KIND]
    truncated = kind == Kind.TRUNCATED
    x = logits.to(torch.float32, copy=True)
    bad = ~finite_rows(x)
    if edits:
        _edit(x, slots.to(torch.int64), positions, tables)
    x /= floats[:, Word.TEMPERATURE, None]
    apply_min_p(x, None, floats[:, Word.LOG_MIN_P].masked_fill(~truncated, -torch.inf))
    top_k = words[:, Word.TOP_K].to(torch.int64).masked_fill_(~truncated, num_tokens)
    top_p = floats[:, Word.TOP_P].masked_fill(~truncated, 1.0)
    truncate(x, None, top_k, top_p, num_tokens)
    keys = row_keys(words[:, Word.SEED_LOW], words[:, Word.SEED_HIGH], positions.to(torch.int32))
    token_ids = torch.where(kind == Kind.GREEDY, greedy(x), sample(x, None, keys))
    bad |= ~finite_rows(x)
    return token_ids.masked_fill_(bad, 0), bad


def count_outputs(slots: Tensor, token_ids: Tensor, tables: SlotTables) -> None:
    """Count token_ids[R] int64 as outputs of slots[R] int64, where those have penalties."""
    index, rows = _users(tables, Feature.PENALTIES, slots)
    ones = torch.ones_like(index, dtype=torch.int32)
    tables.seen.index_put_((rows, token_ids[index]), ones, accumulate=True)


def _edit(x: Tensor, slots: Tensor, positions: Tensor, tables: SlotTables) -> None:
    """Stages 2 to 9 on float32 logits x[R, V], in place."""
    index, rows = _users(tables, Feature.MIN_TOKENS, slots)
    if index.shape[0]:
        ids = tables.min_tokens_ids[rows]
        begin = tables.params[slots[index], Word.PROMPT_LEN] + tables.min_tokens[rows, 0]
        barred = (positions[index] < begin)[:, None] & (ids >= 0)
        values = torch.zeros_like(ids, dtype=torch.float32).masked_fill_(barred, -torch.inf)
        add_at(x, index, ids.clamp_(min=0), values)
    index, rows = _users(tables, Feature.ALLOWED, slots)
    if index.shape[0]:
        keep_only(x, index, tables.allowed, rows)
    index, rows = _users(tables, Feature.BIAS, slots)
    if index.shape[0]:
        add_at(x, index, tables.bias_ids[rows], tables.bias_values[rows])
    index, rows = _users(tables, Feature.PENALTIES, slots)
    if index.shape[0]:
        apply_penalties(x, index, tables.seen, rows, tables.penalties[rows, :3], None)


def _users(tables: SlotTables, feature: Feature, slots: Tensor) -> tuple[Tensor, Tensor]:
    """(rows of the step that use the feature, their rows in its tables), int64."""
    rows = tables.features[slots, feature].to(torch.int64)
    index = (rows >= 0).nonzero()[:, 0]
    return index, rows[index]


def _candidates(
    logits: Tensor, top_k: Tensor, top_p: Tensor, num_candidates: int
) -> Iterator[tuple[Tensor | None, Tensor, Tensor, Tensor]]:
    """Pieces (rows or None for all, values [u, K], ids [u, K], threshold [u, 1]).

    Later pieces replace earlier ones for the rows they hold.
    """
    num_tokens = logits.shape[1]
    count = min(num_candidates, num_tokens)
    # 1 / (largest probability) is the row's sum of exp(logit - largest logit).
    total = logits.softmax(dim=-1).amax(dim=-1, keepdim=True).reciprocal_()
    rows: Tensor | None = None
    while True:
        piece = (_take(logits, rows), _take(top_k, rows), _take(top_p, rows), _take(total, rows))
        values, ids, threshold, complete = _nucleus(*piece, count)
        yield rows, values, ids, threshold
        if count == num_tokens:
            return
        short = complete.logical_not().nonzero()[:, 0]
        if short.numel() == 0:
            return
        rows = short if rows is None else rows[short]
        count = min(16 * count, num_tokens)


def _nucleus(
    logits: Tensor, top_k: Tensor, top_p: Tensor, total: Tensor, count: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The `count` best of each row and the smallest logit that survives top-k and top-p.

    The last result tells the rows whose survivors are all among those candidates. Sums are in
    float64, one candidate after the other, so that they are the same whatever `count` is.
    """
    values, ids = logits.topk(count, dim=-1)
    limited = (top_k < logits.shape[1])[:, None]
    kth = values.gather(1, (top_k[:, None] - 1).clamp_(max=count - 1))
    in_top_k = (values >= kth) | ~limited
    weights = (values - values[:, :1]).exp_().masked_fill_(~in_top_k, 0.0)
    mass = weights.to(torch.float64).cumsum(dim=-1)
    total = torch.where(limited, mass[:, -1:], total.to(torch.float64))
    wanted = torch.where(top_p < 1.0, top_p, torch.inf)[:, None] * total
    kept = in_top_k
    kept[:, 0] = True  # also in a row of NaN, where no comparison holds
    kept[:, 1:] &= mass[:, :-1] < wanted
    threshold = values.gather(1, kept.sum(dim=-1, keepdim=True) - 1)
    # The mass of a top-k row is known once a candidate is outside of its k.
    last = values[:, -1:]
    complete = (last < torch.where(limited, kth, threshold)) | (last == -torch.inf)
    return values, ids, threshold, complete[:, 0]


def _mix(x: Tensor) -> Tensor:
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * _MIX_1
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * _MIX_2
    return x ^ ((x >> 16) & 0xFFFF)


def _chunks(num_tokens: int) -> Iterator[tuple[int, int]]:
    for start in range(0, num_tokens, CHUNK):
        yield start, min(start + CHUNK, num_tokens)


def _take(x: Tensor, index: Tensor | None) -> Tensor:
    return x if index is None else x.index_select(0, index)


def _mask(logits: Tensor, index: Tensor | None, rows: Tensor, barred: Tensor) -> None:
    """Bar tokens of `rows`, which are what `_take(logits, index)` gave."""
    rows.masked_fill_(barred, -torch.inf)
    if index is not None:
        logits.index_copy_(0, index, rows)


def _put(x: Tensor, index: Tensor | None, rows: Tensor) -> None:
    if index is None:
        x.copy_(rows)
    else:
        x.index_copy_(0, index, rows)
