"""Draws after min-p, top-k and top-p, without sorting the vocabulary.

A pass over the logits (octavo.kernels.draw) leaves the largest value of every group of GROUP tokens
and the mass of every chunk. From these alone a threshold follows below which nothing can survive:

- as many groups as top-k have a maximum at or above the k-th largest maximum, so that many tokens
  do, and the k-th likeliest token is none of those below;
- once the maxima above a value have the mass that top-p wants, the nucleus ends above it too.

Only groups that reach the threshold are read again, typically a few dozen of a thousand. What
survives of their tokens is found on a short list, equals of the last survivor included. A row with
too many candidates (logits so flat that the nucleus holds a thousand tokens, or as many equals) is
read whole instead, with the same outcome: the race is run over all of it, and where the winner is
not a survivor, again among the tokens above the winner. The winner among more than the survivors,
if it is one of them, is theirs; each round leaves fewer.
"""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.kernels.noise import log_exponential, order_key, pack, row_keys, unpack
from octavo.kernels.slot_tables import NUM_WORDS, Kind, Word

GROUP = 128  # tokens of which the pass over the logits keeps the largest
GROUPS = 32  # of a chunk
CHUNK = GROUP * GROUPS  # tokens of one program of that pass

CANDIDATES = 1024  # most that are listed
FEW_CANDIDATES = 256  # length of a short list
PAIRS = 8192  # of candidates that are compared at a time
# Without top-k so many groups are read at most.
_MOST_GROUPS = tl.constexpr(512)
_TILE = tl.constexpr(32)  # groups read at a time

_GROUP = tl.constexpr(GROUP)
_GROUPS = tl.constexpr(GROUPS)
_CHUNK = tl.constexpr(CHUNK)
_PAIRS = tl.constexpr(PAIRS)
_CANDIDATES = tl.constexpr(CANDIDATES)
_FEW_CANDIDATES = tl.constexpr(FEW_CANDIDATES)
_WORDS = tl.constexpr(NUM_WORDS)
_TEMPERATURE = tl.constexpr(int(Word.TEMPERATURE))
_TOP_P = tl.constexpr(int(Word.TOP_P))
_LOG_MIN_P = tl.constexpr(int(Word.LOG_MIN_P))
_TOP_K = tl.constexpr(int(Word.TOP_K))
_SEED_LOW = tl.constexpr(int(Word.SEED_LOW))
_SEED_HIGH = tl.constexpr(int(Word.SEED_HIGH))
_KIND = tl.constexpr(int(Word.KIND))
_TRUNCATED = tl.constexpr(int(Kind.TRUNCATED))
_LOWEST = tl.constexpr(-(1 << 31))  # below the key of every number
_NO_TOKEN = tl.constexpr((1 << 31) - 1)


@triton.jit
def _load_row(x_ptr, token_ids, mask, temperature, DIVIDE: tl.constexpr):
    x = tl.load(x_ptr + token_ids, mask=mask, other=float("-inf")).to(tl.float32)
    if DIVIDE:
        x = tl.div_rn(x, temperature)
    return x


@triton.jit
def threshold_key(maxima, top, rank, wanted):
    """A key that `rank` of the maxima reach, or so many that their mass is `wanted`.

    The largest such key but for its low 12 bits, which are 0; _LOWEST if there is none. Masses are
    relative to a token of logit `top`.
    """
    keys = order_key(maxima)
    weights = tl.exp(maxima - top)
    found = tl.full((), _LOWEST, tl.int64)
    for i in range(20):
        key = found + (tl.full((), 1, tl.int64) << (31 - i))
        above = keys >= key.to(tl.int32)
        count = tl.sum(above.to(tl.int32))
        mass = tl.sum(tl.where(above, weights, 0.0))
        found = tl.where((count >= rank) | (mass >= wanted), key, found)
    return found.to(tl.int32)


@triton.jit
def list_candidates(
    x_ptr,
    groups_ptr,
    candidates_ptr,
    chosen,
    least_key,
    floor,
    temperature,
    num_tokens,
    DIVIDE: tl.constexpr,
    NUM_GROUPS: tl.constexpr,
):
    """Write the packed tokens of the chosen groups [NUM_GROUPS] that reach both bounds.

    Returns how many there are, or more than CANDIDATES: then the list is of no use. Every thread
    of the program may read it.
    """
    group = tl.arange(0, NUM_GROUPS)
    chosen = chosen.to(tl.int32)
    tl.store(groups_ptr + tl.cumsum(chosen, 0) - 1, group, mask=chosen > 0)
    tl.debug_barrier()
    num_chosen = tl.sum(chosen)
    count = tl.full((), 0, tl.int32)
    within = tl.arange(0, _TILE * _GROUP)
    first = tl.full((), 0, tl.int32)
    while (first < num_chosen) & (count <= _CANDIDATES):
        which = first + within // _GROUP
        live = which < num_chosen
        token_ids = tl.load(groups_ptr + which, mask=live, other=0) * _GROUP + within % _GROUP
        live &= token_ids < num_tokens
        x = _load_row(x_ptr, token_ids, live, temperature, DIVIDE)
        reaches = (live & (order_key(x) >= least_key) & (x >= floor)).to(tl.int32)
        place = count + tl.cumsum(reaches, 0) - 1
        mask = (reaches > 0) & (place < _CANDIDATES)
        tl.store(candidates_ptr + place, pack(x, token_ids), mask=mask)
        count += tl.sum(reaches)
        first += _TILE
    tl.debug_barrier()
    return count


@triton.jit
def load_listed(candidates_ptr, at, count):
    """(value, token) of the list's entries `at`; minus infinity and any token past its end."""
    packed = tl.load(candidates_ptr + at, mask=at < count, other=0)
    x, token_ids = unpack(packed)
    return tl.where(at < count, x, float("-inf")), token_ids


@triton.jit
def _draw_listed(
    candidates_ptr, count, top_k, top_p, total, total_known, key_1, key_2, SIZE: tl.constexpr
):
    """(the token drawn from `count` <= SIZE candidates, whether no survivor is missing).

    A token survives if the tokens above it are fewer than top_k and have less mass than top-p
    wants. Every pair is compared: for so few that is quicker than sorting them.
    """
    at = tl.arange(0, SIZE)
    x, token_ids = load_listed(candidates_ptr, at, count)
    top = tl.max(x)
    num_above = tl.zeros([SIZE], tl.int32)
    mass_above = tl.zeros([SIZE], tl.float64)
    for first in range(0, count, _PAIRS // SIZE):
        others, _ = load_listed(candidates_ptr, first + tl.arange(0, _PAIRS // SIZE), count)
        weights = tl.exp(others - top).to(tl.float64)
        above = others[None, :] > x[:, None]
        num_above += tl.sum(above.to(tl.int32), axis=1)
        mass_above += tl.sum(tl.where(above, weights[None, :], 0.0), axis=1)
    in_top_k = (at < count) & (num_above < top_k)
    mass = tl.sum(tl.where(in_top_k, tl.exp(x - top), 0.0).to(tl.float64))
    if total_known == 0:
        total = mass
    wanted = top_p.to(tl.float64) * total
    if top_p >= 1.0:
        wanted = tl.full((), float("inf"), tl.float64)
    score = x - log_exponential(key_1, key_2, token_ids)
    score = tl.where(in_top_k & (mass_above < wanted), score, float("-inf"))
    token = tl.min(tl.where(score == tl.max(score), token_ids, _NO_TOKEN))
    complete = (total_known == 0) | (mass >= wanted)
    return token, complete.to(tl.int32)


@triton.jit
def _count_and_mass(x_ptr, least_key, floor, top, temperature, num_tokens, DIVIDE: tl.constexpr):
    """How many tokens of the row reach both bounds, and their mass."""
    count = tl.full((), 0, tl.int32)
    mass = tl.full((), 0.0, tl.float64)
    for first in range(0, num_tokens, _CHUNK):
        token_ids = first + tl.arange(0, _CHUNK)
        x = _load_row(x_ptr, token_ids, token_ids < num_tokens, temperature, DIVIDE)
        reaches = (order_key(x) >= least_key) & (x >= floor) & (x > float("-inf"))
        count += tl.sum(reaches.to(tl.int32))
        mass += tl.sum(tl.where(reaches, tl.exp(x - top), 0.0).to(tl.float64))
    return count, mass


@triton.jit
def _race(x_ptr, least_key, floor, temperature, key_1, key_2, num_tokens, DIVIDE: tl.constexpr):
    """(winner, its order key) of the race among the row's tokens that reach both bounds."""
    best = tl.full((), float("-inf"), tl.float32)
    winner = tl.full((), 0, tl.int32)
    winner_key = tl.full((), _LOWEST, tl.int32)
    for first in range(0, num_tokens, _CHUNK):
        token_ids = first + tl.arange(0, _CHUNK)
        x = _load_row(x_ptr, token_ids, token_ids < num_tokens, temperature, DIVIDE)
        keys = order_key(x)
        score = x - log_exponential(key_1, key_2, token_ids)
        score = tl.where((keys >= least_key) & (x >= floor), score, float("-inf"))
        top, where = tl.max(score, axis=0, return_indices=True)
        if top > best:
            best = top
            winner = first + where
            winner_key = tl.max(tl.where(token_ids == first + where, keys, _LOWEST))
    return winner, winner_key


@triton.jit
def _draw_whole(
    x_ptr, top_k, top_p, floor, top, temperature, key_1, key_2, num_tokens, DIVIDE: tl.constexpr
):
    """The token drawn from a row by reading all of it, some times."""
    least_key = tl.full((), _LOWEST, tl.int32)
    if top_k < num_tokens:
        found = tl.full((), _LOWEST, tl.int64)
        for i in range(32):
            key = found + (tl.full((), 1, tl.int64) << (31 - i))
            count, _ = _count_and_mass(
                x_ptr, key.to(tl.int32), floor, top, temperature, num_tokens, DIVIDE
            )
            found = tl.where(count >= top_k, key, found)
        least_key = found.to(tl.int32)
    _, total = _count_and_mass(x_ptr, least_key, floor, top, temperature, num_tokens, DIVIDE)
    wanted = top_p.to(tl.float64) * total
    token = tl.full((), 0, tl.int32)
    survives = tl.full((), 0, tl.int32)
    while survives == 0:
        token, token_key = _race(
            x_ptr, least_key, floor, temperature, key_1, key_2, num_tokens, DIVIDE
        )
        least_key = token_key + 1
        survives = (top_p >= 1.0).to(tl.int32)
        if top_p < 1.0:
            _, above = _count_and_mass(
                x_ptr, least_key, floor, top, temperature, num_tokens, DIVIDE
            )
            survives = (above < wanted).to(tl.int32)
    return token


@triton.jit
def _draw_truncated(
    x_ptr,
    maxima_ptr,
    masses_ptr,
    groups_ptr,
    candidates_ptr,
    words_ptr,
    key_1,
    key_2,
    num_tokens,
    num_chunks,
    DIVIDE: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """(token, largest value) of a row after min-p, top-k and top-p."""
    num_groups = num_chunks * _GROUPS
    group = tl.arange(0, CHUNKS * _GROUPS)
    maxima = tl.load(maxima_ptr + group, mask=group < num_groups, other=float("-inf"))
    top = tl.max(maxima)
    token = tl.full((), 0, tl.int32)
    if (top > float("-inf")) & (top < float("inf")):
        temperature = tl.load(words_ptr + _TEMPERATURE).to(tl.float32, bitcast=True)
        top_p = tl.load(words_ptr + _TOP_P).to(tl.float32, bitcast=True)
        floor = top + tl.load(words_ptr + _LOG_MIN_P).to(tl.float32, bitcast=True)
        top_k = tl.load(words_ptr + _TOP_K)
        chunk = tl.arange(0, CHUNKS)
        masses = tl.load(masses_ptr + chunk, mask=chunk < num_chunks, other=0.0)
        chunk_tops = tl.max(tl.reshape(maxima, (CHUNKS, _GROUPS)), axis=1)
        total = tl.sum(masses * tl.exp(chunk_tops - top).to(tl.float64))
        rank = top_k
        wanted = tl.full((), float("inf"), tl.float32)
        if top_k >= num_tokens:
            rank = tl.minimum(top_k, _MOST_GROUPS)
            if top_p < 1.0:
                # A little more, so that rounding does not make the list too short.
                wanted = 1.00001 * top_p * total.to(tl.float32)
        least_key = threshold_key(maxima, top, rank, wanted)
        chosen = (order_key(maxima) >= least_key) & (maxima >= floor) & (maxima > float("-inf"))
        count = list_candidates(
            x_ptr,
            groups_ptr,
            candidates_ptr,
            chosen,
            least_key,
            tl.maximum(floor, -3.4028234663852886e38),  # no token that is barred
            temperature,
            num_tokens,
            DIVIDE,
            CHUNKS * _GROUPS,
        )
        # Where every token above min-p is a candidate or top-k's are, so is every survivor.
        total_known = (
            (top_k >= num_tokens) & (order_key(floor) < least_key) & (least_key != _LOWEST)
        ).to(tl.int32)
        # With min-p the tokens that top-p's share is of are not all those of the chunks.
        uncertain = (total_known == 1) & (floor > float("-inf"))
        complete = tl.full((), 0, tl.int32)
        if (count <= _CANDIDATES) & (uncertain == 0):
            if count <= _FEW_CANDIDATES:
                token, complete = _draw_listed(
                    candidates_ptr, count, top_k, top_p, total, total_known, key_1, key_2,
                    _FEW_CANDIDATES,
                )  # fmt: skip
            else:
                token, complete = _draw_listed(
                    candidates_ptr, count, top_k, top_p, total, total_known, key_1, key_2,
                    _CANDIDATES,
                )  # fmt: skip
        if complete == 0:
            token = _draw_whole(
                x_ptr, top_k, top_p, floor, top, temperature, key_1, key_2, num_tokens, DIVIDE
            )
    return token, top


@triton.jit
def finish_kernel(
    x_ptr,
    slots_ptr,
    positions_ptr,
    params_ptr,
    best_ptr,
    best_id_ptr,
    maxima_ptr,
    masses_ptr,
    groups_ptr,
    candidates_ptr,
    out_ptr,
    bad_ptr,
    stride_x,
    num_tokens,
    num_chunks,
    DIVIDE: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Program (row): the row's token and whether its largest logit is not a finite number.

    x: what the pass over the logits read, still to be divided by the temperature where DIVIDE.
    """
    row = tl.program_id(0).to(tl.int64)
    words_ptr = params_ptr + tl.load(slots_ptr + row).to(tl.int64) * _WORDS
    token = tl.full((), 0, tl.int32)
    top = tl.full((), 0.0, tl.float32)
    if tl.load(words_ptr + _KIND) == _TRUNCATED:
        key_1, key_2 = row_keys(
            tl.load(words_ptr + _SEED_LOW),
            tl.load(words_ptr + _SEED_HIGH),
            tl.load(positions_ptr + row).to(tl.int32),
        )
        token, top = _draw_truncated(
            x_ptr + row * stride_x,
            maxima_ptr + row * num_chunks * _GROUPS,
            masses_ptr + row * num_chunks,
            groups_ptr + row * CHUNKS * _GROUPS,
            candidates_ptr + row * _CANDIDATES,
            words_ptr,
            key_1,
            key_2,
            num_tokens,
            num_chunks,
            DIVIDE,
            CHUNKS,
        )
    else:
        chunk = tl.arange(0, CHUNKS)
        mask = chunk < num_chunks
        best = tl.load(best_ptr + row * num_chunks + chunk, mask=mask, other=float("-inf"))
        top, where = tl.max(best, axis=0, return_indices=True)
        token = tl.load(best_id_ptr + row * num_chunks + tl.minimum(where, num_chunks - 1))
    bad = (top == float("inf")) | (top == float("-inf"))
    tl.store(out_ptr + row, tl.where(bad, 0, token).to(tl.int64))
    tl.store(bad_ptr + row, bad.to(tl.int8))
