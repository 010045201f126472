/* Float32 kernels of encoders on the CPU: attention within texts, norms of sums, GELU.
 *
 * Every result is a function of its own text: sums run in one order whatever the company.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "vectors.h"

/* Work below this is done by one thread: waking the others takes longer. */
enum { SMALL_ELEMENTS = 1 << 14 };

static void layer_norm_row(const float *x, const float *add, const float *weight,
                           const float *bias, float *out, int64_t H, float eps) {
    vec totals = splat(0.0f), squares = splat(0.0f);
    float total = 0.0f, square = 0.0f;
    int64_t i = 0;
    for (; i + LANES <= H; i += LANES) {
        const vec v = load(x + i) + load(add + i);
        store(out + i, v);
        totals += v;
    }
    for (; i < H; i++) total += out[i] = x[i] + add[i];
    const float mean = (sum(totals) + total) / (float)H;
    for (i = 0; i + LANES <= H; i += LANES) {
        const vec v = load(out + i) - mean;
        squares += v * v;
    }
    for (; i < H; i++) square += (out[i] - mean) * (out[i] - mean);
    const float scale = 1.0f / sqrtf((sum(squares) + square) / (float)H + eps);
    for (i = 0; i + LANES <= H; i += LANES)
        store(out + i, (load(out + i) - mean) * scale * load(weight + i) + load(bias + i));
    for (; i < H; i++) out[i] = (out[i] - mean) * scale * weight[i] + bias[i];
}

/* out = layer_norm(x + add) * weight + bias, rows of H. */
void octavo_add_layer_norm(const float *x, const float *add, const float *weight,
                           const float *bias, float *out, int64_t T, int64_t H, float eps) {
#pragma omp parallel for schedule(static) if (T * H > SMALL_ELEMENTS)
    for (int64_t t = 0; t < T; t++)
        layer_norm_row(x + t * H, add + t * H, weight, bias, out + t * H, H, eps);
}

/* x (1 + erf(x / sqrt 2)) / 2, erf to within 1.5e-7 (Abramowitz and Stegun, 7.1.26). */
INLINE vec gelu(vec x) {
    const vec z = x * 0.70710678118654752f;
    const vec far = choose(z < splat(0.0f), -z, z);
    const vec t = 1.0f / (1.0f + 0.3275911f * far);
    vec p = splat(1.061405429f);
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const vec tail = p * t * exponential(-far * far); /* 1 - erf(far) */
    return x * choose(z < splat(0.0f), 0.5f * tail, 1.0f - 0.5f * tail);
}

/* Every element of x in its place. */
void octavo_gelu(float *x, int64_t count) {
    const int64_t parts = (count + SMALL_ELEMENTS - 1) / SMALL_ELEMENTS;
#pragma omp parallel for schedule(static) if (parts > 1)
    for (int64_t part = 0; part < parts; part++) {
        const int64_t end = (part + 1) * SMALL_ELEMENTS < count ? (part + 1) * SMALL_ELEMENTS : count;
        int64_t i = part * SMALL_ELEMENTS;
        for (; i + LANES <= end; i += LANES) store(x + i, gelu(load(x + i)));
        float rest[LANES] = {0};
        memcpy(rest, x + i, (end - i) * sizeof(float));
        store(rest, gelu(load(rest)));
        memcpy(x + i, rest, (end - i) * sizeof(float));
    }
}

/* out[rows][PANEL] = x[rows][K] . panel[K][PANEL]; rows of each lie so many floats apart. The sums
 * stay in registers. */
INLINE void block(const int rows, const float *x, int64_t x_stride, int64_t K, const float *panel,
                  int64_t panel_stride, float *out, int64_t out_stride) {
    vec sums[MAX_ROWS][2];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = splat(0.0f);
    for (int64_t k = 0; k < K; k++) {
        const float *line = panel + k * panel_stride;
        const vec first = load(line), second = load(line + LANES);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            const vec value = splat(x[r * x_stride + k]);
            sums[r][0] += value * first;
            sums[r][1] += value * second;
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
        store(out + r * out_stride, sums[r][0]);
        store(out + r * out_stride + LANES, sums[r][1]);
    }
}

/* The same for any number of rows up to MAX_ROWS. */
static void product(const float *x, int64_t x_stride, int64_t rows, int64_t K, const float *panel,
                    int64_t panel_stride, float *out, int64_t out_stride) {
#define CASE(n) \
    case n: block(n, x, x_stride, K, panel, panel_stride, out, out_stride); break;
    switch (rows) {
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if MAX_ROWS > 6
        CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
    }
#undef CASE
}

/* The softmax of `length` scores without its division; what is behind them, to a multiple of LANES,
 * becomes 0. Returns the sum. */
INLINE float exponentials(float *row, int64_t length, int64_t room) {
    for (int64_t i = length; i < room; i++) row[i] = -INFINITY;
    vec highs = splat(-INFINITY), totals = splat(0.0f);
    for (int64_t i = 0; i < room; i += LANES) {
        highs = larger(load(row + i), highs);
    }
    const float most = highest(highs);
    for (int64_t i = 0; i < room; i += LANES) {
        const vec p = exponential(load(row + i) - most);
        store(row + i, p);
        totals += p;
    }
    return sum(totals);
}

/* One head of one text of L tokens, queries, keys and values `stride` floats from token to token.
 * bias: of distance 0, or none. Tokens more than `reach` apart don't see each other. scratch: see
 * text_scratch. */
static void attend_text(const float *q, const float *k, const float *v, int64_t stride, int64_t L,
                        int64_t D, float scale, const float *bias, int64_t reach, float *scratch,
                        float *out, int64_t out_stride) {
    const int64_t key_panels = (L + PANEL - 1) / PANEL, value_panels = (D + PANEL - 1) / PANEL;
    const int64_t room = key_panels * PANEL, width = value_panels * PANEL;
    float *keys = scratch, *values = keys + room * D, *scores = values + L * width;
    float *queries = scores + MAX_ROWS * room, *sums = queries + MAX_ROWS * D;
    if (L % PANEL) memset(keys + (key_panels - 1) * D * PANEL, 0, D * PANEL * sizeof(float));
    for (int64_t i = 0; i < L; i++) {
        float *to = keys + i / PANEL * D * PANEL + i % PANEL;
        for (int64_t d = 0; d < D; d++) to[d * PANEL] = k[i * stride + d];
    }
    /* Values are read where they are, unless their last panel is not whole. */
    int64_t v_stride = stride;
    if (D % PANEL) {
        for (int64_t i = 0; i < L; i++) {
            memcpy(values + i * width, v + i * stride, D * sizeof(float));
            memset(values + i * width + D, 0, (width - D) * sizeof(float));
        }
        v = values;
        v_stride = width;
    }
    for (int64_t begin = 0; begin < L; begin += MAX_ROWS) {
        const int64_t rows = L - begin < MAX_ROWS ? L - begin : MAX_ROWS;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t d = 0; d < D; d++) queries[r * D + d] = q[(begin + r) * stride + d] * scale;
        /* The keys that some of these queries see, from the beginning of a panel on. */
        const int64_t first = begin > reach ? (begin - reach) / PANEL : 0, low = first * PANEL;
        const int64_t high = L - begin - rows > reach ? begin + rows + reach : L;
        for (int64_t p = first; p * PANEL < high; p++)
            product(queries, D, rows, D, keys + p * D * PANEL, PANEL, scores + p * PANEL, room);
        float shares[MAX_ROWS];
        for (int64_t r = 0; r < rows; r++) {
            float *row = scores + r * room;
            const int64_t at = begin + r;
            if (bias)
                for (int64_t i = low; i < high; i++) row[i] += bias[i - at];
            for (int64_t i = low; i < at - reach; i++) row[i] = -INFINITY;
            for (int64_t i = at + reach + 1; i < high; i++) row[i] = -INFINITY;
            const int64_t seen = high - low;
            shares[r] = 1.0f / exponentials(row + low, seen, (seen + LANES - 1) / LANES * LANES);
        }
        for (int64_t p = 0; p < value_panels; p++)
            product(scores + low, room, rows, high - low, v + low * v_stride + p * PANEL, v_stride,
                    sums + p * PANEL, width);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t d = 0; d < D; d++)
                out[(begin + r) * out_stride + d] = sums[r * width + d] * shares[r];
    }
}

/* Floats that attend_text needs for a text of L tokens. */
static int64_t text_scratch(int64_t L, int64_t D) {
    const int64_t room = (L + PANEL - 1) / PANEL * PANEL, width = (D + PANEL - 1) / PANEL * PANEL;
    return room * D + L * width + MAX_ROWS * (room + D + width);
}

/* Attention within texts: text r is tokens starts[r]..starts[r + 1] - 1 of qkv[T][3][H][D], every
 * token sees those of its own at most `reach` away. bias[H][2 span - 1], or none: of distances, 0
 * in the middle. Writes out[T][H][D]. Returns 0, or -1 without memory. */
int octavo_text_attention(const float *qkv, const int32_t *starts, int64_t texts, int64_t H,
                          int64_t D, float scale, const float *bias, int64_t span, int64_t reach,
                          float *out) {
    int64_t longest = 0;
    for (int64_t r = 0; r < texts; r++)
        if (starts[r + 1] - starts[r] > longest) longest = starts[r + 1] - starts[r];
    int failed = 0;
#pragma omp parallel if (starts[texts] > MAX_ROWS)
    {
        float *scratch = malloc((text_scratch(longest, D) + 1) * sizeof(float));
        if (!scratch) {
#pragma omp atomic write
            failed = 1;
        }
#pragma omp for schedule(dynamic) collapse(2)
        for (int64_t r = 0; r < texts; r++)
            for (int64_t h = 0; h < H; h++) {
                const int64_t begin = starts[r], L = starts[r + 1] - begin;
                if (!scratch || L < 1) continue;
                const float *q = qkv + (begin * 3 * H + h) * D;
                const float *near = bias ? bias + h * (2 * span - 1) + span - 1 : 0;
                attend_text(q, q + H * D, q + 2 * H * D, 3 * H * D, L, D, scale, near, reach,
                            scratch, out + (begin * H + h) * D, H * D);
            }
        free(scratch);
    }
    return failed ? -1 : 0;
}
