/* Products with packed weights. Sums run over K in one order, in one register each, whatever the
 * number of rows: a row's result does not depend on its neighbours. */

#ifndef OCTAVO_PRODUCTS_H
#define OCTAVO_PRODUCTS_H

#include "vectors.h"

/* A weight[N][K] as panels [K][PANEL], one after the other; the last is [K][what is left of N]. */
typedef struct {
    const float *packed, *bias; /* bias[N] or none */
    int64_t N, K;
} linear_t;

typedef enum { STORE, ADD } write_t;

/* `rows` rows of x[][K] times one panel; the sums stay in registers. */
INLINE void tile(const int rows, const int full, const write_t how, const float *x, int64_t K,
                 const float *panel, const float *bias, float *out, int64_t N, int64_t width) {
    float part[PANEL] = {0};
    vec sums[MAX_ROWS][2];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = splat(0.0f);
    for (int64_t k = 0; k < K; k++) {
        if (!full) memcpy(part, panel + k * width, width * sizeof(float));
        const float *line = full ? panel + k * PANEL : part;
        const vec first = load(line), second = load(line + LANES);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            const vec value = splat(x[r * K + k]);
            sums[r][0] += value * first;
            sums[r][1] += value * second;
        }
    }
    if (bias) memcpy(part, bias, width * sizeof(float));
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
        float *to = out + r * N;
        if (bias) {
            sums[r][0] += load(part);
            sums[r][1] += load(part + LANES);
        }
        if (full) {
            store(to, how == ADD ? load(to) + sums[r][0] : sums[r][0]);
            store(to + LANES, how == ADD ? load(to + LANES) + sums[r][1] : sums[r][1]);
        } else {
            float result[PANEL];
            store(result, sums[r][0]);
            store(result + LANES, sums[r][1]);
            for (int64_t n = 0; n < width; n++) to[n] = how == ADD ? to[n] + result[n] : result[n];
        }
    }
}

#if MAX_ROWS == 12
#define EACH_HEIGHT(CASE) \
    CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) \
    CASE(12)
#define EACH_LOW_HEIGHT(CASE) CASE(1) CASE(2) CASE(3) CASE(4) /* MAX_ROWS / 3 */
#else
#define EACH_HEIGHT(CASE) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#define EACH_LOW_HEIGHT(CASE) CASE(1) CASE(2)
#endif

/* out[M][N] = or += x[M][K] . a panel of full width. */
INLINE void whole_panel(const write_t how, const float *x, int64_t M, int64_t K,
                        const float *panel, const float *bias, float *out, int64_t N) {
    /* Tiles of nearly equal height: a tile of one row costs as much weight traffic as one of 12. */
    const int64_t tiles = (M + MAX_ROWS - 1) / MAX_ROWS;
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t begin = M * t / tiles, rows = M * (t + 1) / tiles - begin;
#define CASE(n) \
    case n: tile(n, 1, how, x + begin * K, K, panel, bias, out + begin * N, N, PANEL); break;
        switch (rows) { EACH_HEIGHT(CASE) }
#undef CASE
    }
}

static void panel_store(const float *x, int64_t M, int64_t K, const float *panel,
                        const float *bias, float *out, int64_t N) {
    whole_panel(STORE, x, M, K, panel, bias, out, N);
}

static void panel_add(const float *x, int64_t M, int64_t K, const float *panel, const float *bias,
                      float *out, int64_t N) {
    whole_panel(ADD, x, M, K, panel, bias, out, N);
}

/* The same for a panel of less than full width: the last one, of few models. */
static void narrow_panel(const write_t how, const float *x, int64_t M, int64_t K,
                         const float *panel, const float *bias, float *out, int64_t N,
                         int64_t width) {
    for (int64_t m = 0; m < M;) {
        const int64_t rows = M - m < MAX_ROWS / 2 ? 1 : MAX_ROWS / 2;
        const float *from = x + m * K;
        float *to = out + m * N;
        if (rows == 1) tile(1, 0, how, from, K, panel, bias, to, N, width);
        else tile(MAX_ROWS / 2, 0, how, from, K, panel, bias, to, N, width);
        m += rows;
    }
}

/* Rows of x that stay in a core's second-level cache while all panels pass. */
enum { CACHED_FLOATS = 1 << 17, MIN_CACHED_ROWS = 8 * MAX_ROWS };

INLINE int64_t row_blocks(int64_t M, int64_t K) {
    int64_t height = CACHED_FLOATS / K / MAX_ROWS * MAX_ROWS;
    if (height < MIN_CACHED_ROWS) height = MIN_CACHED_ROWS;
    return (M + height - 1) / height;
}

/* Pieces of work that threads take from a common counter, some at a time: in the order of memory,
 * and so that one thread's delay does not keep the others waiting for long. */
typedef struct {
    int64_t next, end;
} share_t;

INLINE share_t take(int64_t *counter, int64_t total, int64_t threads) {
    const int64_t least = total / (16 * threads), size = least > 1 ? least : 1;
    const int64_t begin = __atomic_fetch_add(counter, size, __ATOMIC_RELAXED);
    return (share_t){begin, begin + size < total ? begin + size : total};
}

/* This thread's part of out[M][N] = or += x[M][K] . weight + bias. */
static void linear_part(const linear_t *linear, write_t how, const float *x, float *out, int64_t M,
                        int64_t *counter, int64_t threads) {
    const int64_t N = linear->N, K = linear->K;
    const int64_t panels = (N + PANEL - 1) / PANEL, blocks = row_blocks(M, K);
    const int64_t total = panels * blocks;
    for (share_t share = take(counter, total, threads); share.next < total;
         share = take(counter, total, threads))
        for (int64_t i = share.next; i < share.end; i++) {
            const int64_t block = i / panels, n = i % panels * PANEL;
            const int64_t row = M * block / blocks, rows = M * (block + 1) / blocks - row;
            const float *from = x + row * K, *panel = linear->packed + n * K;
            const float *bias = linear->bias ? linear->bias + n : 0;
            float *to = out + row * N + n;
            if (N - n < PANEL) narrow_panel(how, from, rows, K, panel, bias, to, N, N - n);
            else if (how == ADD) panel_add(from, rows, K, panel, bias, to, N);
            else panel_store(from, rows, K, panel, bias, to, N);
        }
}

INLINE vec silu_times(vec gate, vec up) { return gate / (1.0f + exponential(-gate)) * up; }

/* This thread's part of out[M][I] = silu(gate) * up, where [gate, up] = x[M][K] . weight[2 I][K]
 * + bias and I is a multiple of PANEL: neither ever leaves the cache. */
static void gated_part(const linear_t *linear, const float *x, float *out, int64_t M,
                       int64_t *counter, int64_t threads) {
    const int64_t I = linear->N / 2, K = linear->K;
    const int64_t panels = I / PANEL, blocks = row_blocks(M, K), total = panels * blocks;
    for (share_t share = take(counter, total, threads); share.next < total;
         share = take(counter, total, threads))
        for (int64_t i = share.next; i < share.end; i++) {
            const int64_t block = i / panels, n = i % panels * PANEL;
            const int64_t end = M * (block + 1) / blocks;
            const float *gate_panel = linear->packed + n * K, *up_panel = gate_panel + I * K;
            const float *bias = linear->bias ? linear->bias + n : 0;
            for (int64_t row = M * block / blocks; row < end;) {
                enum { ROWS = 8 * MAX_ROWS };
                float gate[ROWS * PANEL], up[ROWS * PANEL];
                const int64_t rows = end - row < ROWS ? end - row : ROWS;
                panel_store(x + row * K, rows, K, gate_panel, bias, gate, PANEL);
                panel_store(x + row * K, rows, K, up_panel, bias ? bias + I : 0, up, PANEL);
                for (int64_t r = 0; r < rows; r++)
                    for (int64_t c = 0; c < PANEL; c += LANES)
                        store(out + (row + r) * I + n + c,
                              silu_times(load(gate + r * PANEL + c), load(up + r * PANEL + c)));
                row += rows;
            }
        }
}

#endif
