/* Causal attention over paged keys and values, read once: softmax is kept up to date as they come
 * (Milakov and Gimelshein, arXiv 1805.02867), PANEL keys at a time.
 *
 * Every score is one sum over the head's elements, in order, and every output one over the keys, in
 * order; panels begin at multiples of PANEL, and keys that a token does not see add exact zeros. So
 * a token's result depends on no other token, and not on how many are computed with it.
 */

#ifndef OCTAVO_ATTENTION_H
#define OCTAVO_ATTENTION_H

#include <math.h>
#include <stdlib.h>

#include "products.h"

typedef struct {
    const float *q; /* [T][Hq][D], q_stride floats from token to token */
    int64_t q_stride;
    const float *pages; /* [block][2][Hkv][block_size][D], page_stride floats from block to block */
    int64_t page_stride;
    float *out; /* [T][Hq][D] */
    int64_t Hq, Hkv, D, block_size;
    float scale, soft_cap; /* soft_cap: 0 for none */
    int64_t window;        /* keys a token sees, itself included; 0 for all */
} attention_t;

/* The rows of a step: row r has tokens starts[r]..starts[r + 1] - 1, the last of its seq_lens[r],
 * and the blocks tables[slots[r]]. */
typedef struct {
    const int32_t *starts, *seq_lens, *tables;
    const int64_t *slots;
    int64_t table_stride, rows;
} rows_t;

/* Some tokens of one row, for some KV heads. */
typedef struct {
    const int32_t *table;
    int64_t token, tokens, length; /* the first token; how many; keys that the last one sees */
    int64_t head, heads;
} piece_t;

typedef struct {
    piece_t *pieces;
    int64_t count, floats; /* scratch memory that the largest piece needs */
} plan_t;

/* The first key that any token of a piece sees. */
INLINE int64_t first_key(const attention_t *a, const piece_t *piece) {
    const int64_t length = piece->length - piece->tokens + 1;
    return a->window && length > a->window ? length - a->window : 0;
}

/* Room for the arrays of `attend`. */
INLINE int64_t scratch_floats(const attention_t *a, const piece_t *piece) {
    const int64_t rows = piece->tokens * (a->Hq / a->Hkv), all = rows * piece->heads;
    const int64_t places = 2 * PANEL * (2 + 4 * piece->heads); /* of 8 bytes */
    return (places + (a->D + rows) * PANEL + all * (2 * a->D + LANES + 1) + 15) / 16 * 16;
}

/* Cut a step into pieces: a decoding row's heads together, whose keys are neighbours in memory; of
 * prompts one head at a time, and some tokens. Returns 0, or -1 without memory. */
static int make_plan(const attention_t *a, const rows_t *rows, int64_t threads, plan_t *plan) {
    const int64_t G = a->Hq / a->Hkv, tokens = rows->starts[rows->rows];
    const int64_t most = 4 * MAX_ROWS / G > 1 ? 4 * MAX_ROWS / G : 1;
    plan->count = plan->floats = 0;
    plan->pieces = malloc((tokens * a->Hkv + 1) * sizeof(piece_t));
    if (!plan->pieces) return -1;
    for (int64_t r = 0; r < rows->rows; r++) {
        const int64_t begin = rows->starts[r], end = rows->starts[r + 1];
        piece_t piece = {.table = rows->tables + rows->slots[r] * rows->table_stride};
        piece.heads = end - begin == 1 && rows->rows >= 4 * threads ? a->Hkv : 1;
        for (piece.head = 0; piece.head < a->Hkv; piece.head += piece.heads)
            for (int64_t last = end; last > begin; last -= piece.tokens) {
                piece.tokens = last - begin < most ? last - begin : most;
                piece.token = last - piece.tokens;
                piece.length = rows->seq_lens[r] - (end - last);
                const int64_t floats = scratch_floats(a, &piece);
                if (floats > plan->floats) plan->floats = floats;
                plan->pieces[plan->count++] = piece;
            }
    }
    return 0;
}

/* The panel of keys that begins with the key `at`, of which a piece sees some. */
typedef struct {
    int64_t *keys;  /* [PANEL]: where they are, floats from the first page of their head */
    int64_t *order; /* [2 * heads * PANEL]: keys and values of all heads in the order of memory */
} panel_t;

/* What lies before or behind the keys that are seen is not read: the nearest is, in its place. */
static void find_panel(const attention_t *a, const piece_t *piece, int64_t at, panel_t panel) {
    const int64_t first = first_key(a, piece), D = a->D, size = a->block_size;
    const int64_t end = at + PANEL < piece->length ? at + PANEL : piece->length;
    int64_t *order = panel.order, i = 0;
    for (int64_t key = at > first ? at : first; key < end;) {
        const int64_t block = key / size, offset = key % size;
        const int64_t stop = (block + 1) * size < end ? (block + 1) * size : end;
        const int64_t page = piece->table[block] * a->page_stride, count = stop - key;
        for (; i < key - at; i++) panel.keys[i] = page + offset * D; /* before the first */
        for (int64_t k = 0; k < count; k++) panel.keys[i++] = page + (offset + k) * D;
        for (int64_t side = 0; side < 2; side++)
            for (int64_t h = piece->head; h < piece->head + piece->heads; h++)
                for (int64_t k = 0; k < count; k++)
                    *order++ = page + ((side * a->Hkv + h) * size + offset + k) * D;
        key = stop;
    }
    for (; i < PANEL; i++) panel.keys[i] = panel.keys[i - 1];
    for (int64_t *last = panel.order + 2 * piece->heads * PANEL; order < last; order++)
        *order = order[-1];
}

/* PANEL keys as a panel [D][PANEL].
 *
 * Pages lie anywhere, so that the processor does not see the next ones coming; and it waits if it
 * is told of too many at once. So this and the two loops below ask for memory that will be read
 * soon, piece by piece: `coming` are LANES places of D floats in `pages`. */
INLINE void turn_keys(const float *keys, const int64_t *places, int64_t D, float *panel,
                      const float *pages, const int64_t *coming) {
    for (int64_t half = 0; half < PANEL; half += LANES)
        for (int64_t d = 0; d < D; d += LANES) {
#pragma GCC unroll 16
            for (int64_t i = half / LANES; i < LANES; i += 2)
                __builtin_prefetch(pages + coming[i] + d, 0, 2);
#pragma GCC unroll 4
            for (int64_t i = 0; i < LANES; i += 4) {
                vec lines[4];
                transpose_fours(keys + d + i, places + half, lines);
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++) store(panel + (d + i + j) * PANEL + half, lines[j]);
            }
        }
}

/* scores[rows][PANEL] of q[rows][D]. Asks for LANES places. */
INLINE void score_tile(const int rows, const float *q, int64_t D, const float *panel,
                       const float *pages, const int64_t *coming, float *scores) {
    vec sums[MAX_ROWS][2];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = splat(0.0f);
    for (int64_t i = 0; i < LANES; i++) {
        const float *next = pages + coming[i];
        for (int64_t left = D / LANES; left; left--) {
            const vec first = load(panel), second = load(panel + LANES);
            __builtin_prefetch(next, 0, 2);
#pragma GCC unroll 12
            for (int r = 0; r < rows; r++) {
                const vec value = splat(q[r * D]);
                sums[r][0] += value * first;
                sums[r][1] += value * second;
            }
            q++;
            panel += PANEL;
            next += LANES;
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
        store(scores + r * PANEL, sums[r][0]);
        store(scores + r * PANEL + LANES, sums[r][1]);
    }
}

static void score(int64_t rows, const float *q, int64_t D, const float *panel, const float *pages,
                  const int64_t *coming, float *scores) {
    const int64_t tiles = (rows + MAX_ROWS - 1) / MAX_ROWS;
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t begin = rows * t / tiles, height = rows * (t + 1) / tiles - begin;
#define CASE(n) \
    case n: score_tile(n, q + begin * D, D, panel, pages, coming, scores + begin * PANEL); break;
        switch (height) { EACH_HEIGHT(CASE) }
#undef CASE
    }
}

/* What a row has come to: the highest score so far, and the weights' sums by it. */
typedef struct {
    float *highest, *totals, *sums; /* [1], [LANES], [D] */
} softmax_t;

/* A row's scores[PANEL] -> weights by the highest score, to which its sums are brought before. */
INLINE void weigh(float *scores, softmax_t row, int64_t D) {
    const vec first = load(scores), second = load(scores + LANES);
    const float before = *row.highest, here = highest(larger(first, second));
    float top = before;
    if (here > before) {
        const vec shrink = exponential(splat(before - here));
        for (int64_t d = 0; d < D; d += LANES) store(row.sums + d, load(row.sums + d) * shrink);
        store(row.totals, load(row.totals) * shrink);
        *row.highest = top = here;
    }
    if (top == -INFINITY) top = 0.0f; /* nothing seen yet, or not a number */
    const vec p = exponential(first - top), q = exponential(second - top);
    store(row.totals, load(row.totals) + p + q);
    store(scores, p);
    store(scores + LANES, q);
}

/* sums[rows][D] += weights[rows][PANEL] . values, of the first `count` places, for `wide` vectors
 * of each value. Asks for half a place with each. */
INLINE void value_tile(const int rows, const int wide, const float *weights, const float *values,
                       const int64_t *places, int64_t count, const float *pages,
                       const int64_t *coming, float *to, int64_t D) {
    vec sums[MAX_ROWS][4];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int w = 0; w < wide; w++) sums[r][w] = load(to + r * D + w * LANES);
    for (int64_t i = 0; i < count; i++) {
        const float *value = values + places[i];
        const float *next = pages + coming[i / 2] + i % 2 * (wide / 2) * LANES;
        vec parts[4];
#pragma GCC unroll 4
        for (int w = 0; w < wide; w++) parts[w] = load(value + w * LANES);
#pragma GCC unroll 2
        for (int w = 0; w < (wide + 1) / 2; w++) __builtin_prefetch(next + w * LANES, 0, 2);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            const vec weight = splat(weights[r * PANEL + i]);
#pragma GCC unroll 4
            for (int w = 0; w < wide; w++) sums[r][w] += weight * parts[w];
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int w = 0; w < wide; w++) store(to + r * D + w * LANES, sums[r][w]);
}

static void add_values(int64_t rows, const float *weights, const float *values,
                       const int64_t *places, int64_t count, const float *pages,
                       const int64_t *coming, float *sums, int64_t D) {
    const int64_t tiles = (rows + MAX_ROWS - 1) / MAX_ROWS;
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t begin = rows * t / tiles, height = rows * (t + 1) / tiles - begin;
        const float *from = weights + begin * PANEL;
        float *to = sums + begin * D;
        int64_t d = 0;
#define CASE(n, wide) \
    case n: \
        value_tile(n, wide, from, values + d, places, count, pages + d, coming, to + d, D); \
        break;
#define FOUR(n) CASE(n, 4)
#define TWO(n) CASE(n, 2)
#define ONE(n) CASE(n, 1)
        for (; height <= MAX_ROWS / 3 && d + 4 * LANES <= D; d += 4 * LANES)
            switch (height) { EACH_LOW_HEIGHT(FOUR) }
        for (; d + 2 * LANES <= D; d += 2 * LANES)
            switch (height) { EACH_HEIGHT(TWO) }
        for (; d < D; d += LANES)
            switch (height) { EACH_HEIGHT(ONE) }
#undef CASE
#undef FOUR
#undef TWO
#undef ONE
    }
}

/* Of PANEL keys that begin with the key `at`, those that a token does not see get no weight. */
INLINE void hide(float *scores, int64_t at, int64_t first, int64_t length) {
    for (int64_t i = 0; i < PANEL && at + i < first; i++) scores[i] = -INFINITY;
    for (int64_t i = length > at ? length - at : 0; i < PANEL; i++) scores[i] = -INFINITY;
}

/* What row `r` of `rows` asks for of LANES places. */
INLINE void fetch_share(const float *pages, const int64_t *coming, int64_t D, int64_t r,
                        int64_t rows) {
    for (int64_t i = LANES * r / rows; i < LANES * (r + 1) / rows; i++)
        for (int64_t d = 0; d < D; d += 16) __builtin_prefetch(pages + coming[i] + d, 0, 2);
}

/* One piece, with scratch memory as planned; `next` is the one that this thread will do next. */
static void attend(const attention_t *a, const piece_t *piece, const piece_t *next,
                   float *scratch) {
    const int64_t D = a->D, G = a->Hq / a->Hkv;
    const int64_t rows = piece->tokens * G, all = piece->heads * rows;
    const int64_t first = first_key(a, piece), head_page = a->block_size * D;
    int64_t *places = (int64_t *)scratch, *orders = places + 2 * PANEL;
    float *panel = (float *)(orders + 2 * piece->heads * 2 * PANEL), *scores = panel + D * PANEL;
    float *q = scores + rows * PANEL, *sums = q + all * D, *totals = sums + all * D;
    float *highest = totals + all * LANES;
    panel_t here = {places, orders};
    panel_t there = {places + PANEL, orders + 2 * piece->heads * PANEL};

    for (int64_t h = 0; h < piece->heads; h++)
        for (int64_t t = 0; t < piece->tokens; t++) {
            const float *head = a->q + (piece->token + t) * a->q_stride + (piece->head + h) * G * D;
            float *to = q + (h * rows + t * G) * D;
            for (int64_t i = 0; i < G * D; i += LANES) store(to + i, load(head + i) * a->scale);
        }
    memset(sums, 0, all * (D + LANES) * sizeof(float));
    for (int64_t r = 0; r < all; r++) highest[r] = -INFINITY;
    find_panel(a, piece, first / PANEL * PANEL, here);
    for (int64_t at = first / PANEL * PANEL; at < piece->length; at += PANEL) {
        const int64_t begin = at < first ? first - at : 0;
        const int64_t end = piece->length - at < PANEL ? piece->length - at : PANEL;
        if (at + PANEL < piece->length) find_panel(a, piece, at + PANEL, there);
        else if (next->heads == piece->heads)
            find_panel(a, next, first_key(a, next) / PANEL * PANEL, there);
        else there = here;
        for (int64_t h = 0; h < piece->heads; h++) {
            const float *keys = a->pages + (piece->head + h) * head_page;
            const float *values = keys + a->Hkv * head_page;
            const int64_t *coming = there.order + 2 * h * PANEL;
            turn_keys(keys, here.keys, D, panel, a->pages, coming);
            score(rows, q + h * rows * D, D, panel, a->pages, coming + LANES, scores);
            for (int64_t r = 0; r < rows; r++) {
                const int64_t length = piece->length - piece->tokens + 1 + r / G;
                const int64_t row = h * rows + r;
                const softmax_t softmax = {highest + row, totals + row * LANES, sums + row * D};
                float *of_row = scores + r * PANEL;
                if (a->soft_cap > 0.0f)
                    for (int i = 0; i < PANEL; i++)
                        of_row[i] = a->soft_cap * tanhf(of_row[i] / a->soft_cap);
                const int64_t unseen = a->window && length > a->window ? length - a->window : 0;
                if (at < unseen || at + PANEL > length) hide(of_row, at, unseen, length);
                fetch_share(a->pages, coming + 2 * LANES, D, r, rows);
                weigh(of_row, softmax, D);
            }
            add_values(rows, scores + begin, values, here.keys + begin, end - begin, a->pages,
                       coming + 3 * LANES, sums + h * rows * D, D);
        }
        const panel_t swapped = here;
        here = there;
        there = swapped;
    }
    for (int64_t r = 0; r < all; r++) {
        const int64_t token = piece->token + r % rows / G, head = piece->head + r / rows;
        float *to = a->out + (token * a->Hq + head * G + r % G) * D;
        const float share = 1.0f / sum(load(totals + r * LANES));
        for (int64_t d = 0; d < D; d += LANES) store(to + d, load(sums + r * D + d) * share);
    }
}

/* This thread's part of a planned step. */
static void attention_part(const attention_t *a, const plan_t *plan, float *scratch,
                           int64_t *counter) {
    int64_t i = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
    while (i < plan->count) {
        const int64_t next = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
        attend(a, plan->pieces + i, plan->pieces + (next < plan->count ? next : i), scratch);
        i = next;
    }
}

/* Scratch memory for each of `threads` threads, or none. */
INLINE float *scratch_memory(const plan_t *plan, int64_t threads) {
    return aligned_alloc(64, threads * plan->floats * sizeof(float) + 64);
}

#endif
