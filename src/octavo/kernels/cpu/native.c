/* Float32 kernels of the CPU: packed matrix product, norms, rotary embedding, paged attention.
 *
 * Vectors are GCC's generic ones, as wide as the machine this is compiled for. Every result is a
 * function of its own row: sums run in one order whatever the number of rows or threads.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#define MAX_ROWS 12 /* rows of a tile: with two vectors of outputs, 24 of 32 registers are sums */
#else
#define LANES 8
#define MAX_ROWS 6 /* 12 of 16 registers */
#endif
#define PANEL (2 * LANES) /* outputs of a tile */

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float vec_any __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));

#define INLINE static inline __attribute__((always_inline))

/* Work below these sizes is done by one thread: waking the others takes longer. */
enum { SMALL_ELEMENTS = 1 << 14, SMALL_KEYS = 1 << 10 };

INLINE vec load(const float *from) { return *(const vec_any *)from; }
INLINE void store(float *to, vec value) { *(vec_any *)to = value; }
INLINE vec splat(float value) { return (vec){0} + value; }

INLINE float sum(vec v) {
    float part[LANES];
    store(part, v);
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) part[i] += part[i + width];
    return part[0];
}

INLINE vec choose(ivec where, vec yes, vec no) {
    return (vec)(((ivec)yes & where) | ((ivec)no & ~where));
}

/* e^x within 2 units in the last place; 0 below -87, e^88 above 88, NaN for NaN. Range reduction by
 * ln 2 in two parts, then a polynomial of degree 6 (coefficients: Cephes, S. Moshier). */
INLINE vec exponential(vec x) {
    const ivec vanishes = x < splat(-87.0f);
    x = choose(vanishes, splat(-87.0f), x);
    x = choose(x > splat(88.0f), splat(88.0f), x);
    const vec shift = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    const vec n = (x * 1.44269504088896341f + shift) - shift;
    const vec r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    vec p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const ivec power = (__builtin_convertvector(n, ivec) + 127) << 23;
    return choose(vanishes, splat(0.0f), p * (vec)power);
}

/* Ask for large pages before the first touch: small ones cost a tenth of a step in lookups. */
static void use_large_pages(float *memory, int64_t floats) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t size = 2 << 20, begin = ((uintptr_t)memory + size - 1) / size * size;
    const uintptr_t end = (uintptr_t)(memory + floats) / size * size;
    if (begin < end) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)memory, (void)floats;
#endif
}

/* Panels [K][PANEL] of weight[N][K], one after the other; the last is [K][what is left of N]. */
void octavo_pack(const float *weight, float *packed, int64_t N, int64_t K) {
    const int64_t panels = (N + PANEL - 1) / PANEL;
    use_large_pages(packed, N * K);
#pragma omp parallel for schedule(static)
    for (int64_t panel = 0; panel < panels; panel++) {
        const int64_t first = panel * PANEL, width = N - first < PANEL ? N - first : PANEL;
        float *to = packed + first * K;
        for (int64_t k = 0; k < K; k++)
            for (int64_t n = 0; n < width; n++) *to++ = weight[(first + n) * K + k];
    }
}

int64_t octavo_lanes(void) { return LANES; }

/* `rows` rows of x times one panel; the sums stay in registers. */
INLINE void tile(const int rows, const int full, const float *x, int64_t K, const float *panel,
                 const float *bias, float *out, int64_t N, int64_t width) {
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
            store(to, sums[r][0]);
            store(to + LANES, sums[r][1]);
        } else {
            float result[PANEL];
            store(result, sums[r][0]);
            store(result + LANES, sums[r][1]);
            memcpy(to, result, width * sizeof(float));
        }
    }
}

/* Rows of x that stay in a core's second-level cache while all panels pass. */
enum { CACHED_FLOATS = 1 << 17, MIN_CACHED_ROWS = 8 * MAX_ROWS };

static void panel_product(const float *x, int64_t M, int64_t K, const float *panel,
                          const float *bias, float *out, int64_t N, int64_t width) {
    const int full = width == PANEL;
    /* Tiles of nearly equal height: a tile of one row costs as much weight traffic as one of 12. */
    const int64_t tiles = (M + MAX_ROWS - 1) / MAX_ROWS;
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t begin = M * t / tiles, rows = M * (t + 1) / tiles - begin;
        const float *from = x + begin * K;
        float *to = out + begin * N;
#define CASE(n) \
    case n: \
        if (full) tile(n, 1, from, K, panel, bias, to, N, width); \
        else tile(n, 0, from, K, panel, bias, to, N, width); \
        break;
        switch (rows) {
            CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if MAX_ROWS > 6
            CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
        }
#undef CASE
    }
}

/* out[M][N] = x[M][K] . weight[N][K] + bias[N]; `packed` is octavo_pack's. */
void octavo_linear(const float *x, const float *packed, const float *bias, float *out, int64_t M,
                   int64_t N, int64_t K) {
    const int64_t panels = (N + PANEL - 1) / PANEL;
    int64_t height = CACHED_FLOATS / K / MAX_ROWS * MAX_ROWS;
    if (height < MIN_CACHED_ROWS) height = MIN_CACHED_ROWS;
    const int64_t blocks = (M + height - 1) / height;
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t p = 0; p < panels; p++) {
            const int64_t row = M * block / blocks, rows = M * (block + 1) / blocks - row;
            const int64_t first = p * PANEL, width = N - first < PANEL ? N - first : PANEL;
            panel_product(x + row * K, rows, K, packed + first * K, bias ? bias + first : 0,
                          out + row * N + first, N, width);
        }
}

static void norm_row(float *x, const float *add, const float *weight, float *out, int64_t H,
                     float eps) {
    vec squares = splat(0.0f);
    float rest = 0.0f;
    int64_t i = 0;
    for (; i + LANES <= H; i += LANES) {
        vec v = load(x + i);
        if (add) {
            v += load(add + i);
            store(x + i, v);
        }
        squares += v * v;
    }
    for (; i < H; i++) {
        if (add) x[i] += add[i];
        rest += x[i] * x[i];
    }
    const float scale = 1.0f / sqrtf((sum(squares) + rest) / (float)H + eps);
    for (i = 0; i + LANES <= H; i += LANES) store(out + i, load(x + i) * scale * load(weight + i));
    for (; i < H; i++) out[i] = x[i] * scale * weight[i];
}

/* out = rms_norm(x) * weight, rows of H; with `add` first x += add. x is written only then. */
void octavo_rms_norm(float *x, const float *add, const float *weight, float *out, int64_t T,
                     int64_t H, float eps) {
#pragma omp parallel for schedule(static) if (T * H > SMALL_ELEMENTS)
    for (int64_t t = 0; t < T; t++)
        norm_row(x + t * H, add ? add + t * H : 0, weight, out + t * H, H, eps);
}

/* out[T][I] = silu(x[T][:I]) * x[T][I:]. */
void octavo_silu_and_mul(const float *x, float *out, int64_t T, int64_t I) {
#pragma omp parallel for schedule(static) if (T * I > SMALL_ELEMENTS)
    for (int64_t t = 0; t < T; t++) {
        const float *gate = x + t * 2 * I, *up = gate + I;
        float *to = out + t * I;
        int64_t i = 0;
        for (; i + LANES <= I; i += LANES) {
            const vec g = load(gate + i);
            store(to + i, g / (1.0f + exponential(-g)) * load(up + i));
        }
        for (; i < I; i++) to[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    }
}

INLINE void rotate(float *x, const float *cos, const float *sin, int64_t half, int is_neox) {
    if (is_neox) {
        int64_t i = 0;
        for (; i + LANES <= half; i += LANES) {
            const vec a = load(x + i), b = load(x + half + i);
            const vec c = load(cos + i), s = load(sin + i);
            store(x + i, a * c - b * s);
            store(x + half + i, b * c + a * s);
        }
        for (; i < half; i++) {
            const float a = x[i], b = x[half + i];
            x[i] = a * cos[i] - b * sin[i];
            x[half + i] = b * cos[i] + a * sin[i];
        }
    } else {
        for (int64_t i = 0; i < half; i++) {
            const float a = x[2 * i], b = x[2 * i + 1];
            x[2 * i] = a * cos[i] - b * sin[i];
            x[2 * i + 1] = b * cos[i] + a * sin[i];
        }
    }
}

/* Norm and rotate the query and key heads of qkv[T][Hq + 2 Hkv][D] in place; write keys and values
 * to their places in pages of `page_stride` floats, [2][Hkv][block_size][D] each (slot -1: none). */
void octavo_rope_cache(float *qkv, const float *q_norm, const float *k_norm, float eps,
                       const float *cos_sin, const int64_t *positions, const int64_t *slots,
                       float *pages, int64_t page_stride, int64_t T, int64_t Hq, int64_t Hkv,
                       int64_t D, int64_t block_size, int64_t rotary_dim, int is_neox) {
    const int64_t width = (Hq + 2 * Hkv) * D, half = rotary_dim / 2;
#pragma omp parallel for schedule(static) if (T * width > SMALL_ELEMENTS)
    for (int64_t t = 0; t < T; t++) {
        float *heads = qkv + t * width;
        const float *cos = cos_sin + positions[t] * rotary_dim;
        for (int64_t h = 0; h < Hq + Hkv; h++) {
            float *head = heads + h * D;
            const float *weight = h < Hq ? q_norm : k_norm;
            if (weight) norm_row(head, 0, weight, head, D, eps);
            rotate(head, cos, cos + half, half, is_neox);
        }
        if (slots[t] < 0) continue;
        float *page = pages + slots[t] / block_size * page_stride + slots[t] % block_size * D;
        for (int64_t h = 0; h < 2 * Hkv; h++)
            memcpy(page + h * block_size * D, heads + (Hq + h) * D, D * sizeof(float));
    }
}

/* The sums of LANES vectors, in order: each step adds neighbours and halves what is left of each. */
INLINE vec neighbours(vec a, vec b) {
#if LANES == 16
    const ivec even = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
#else
    const ivec even = {0, 2, 4, 6, 8, 10, 12, 14};
#endif
    return __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, even + 1);
}

INLINE vec sums(vec *parts) {
#pragma GCC unroll 4
    for (int count = LANES / 2; count; count /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < count; i++) parts[i] = neighbours(parts[2 * i], parts[2 * i + 1]);
    return parts[0];
}

typedef struct {
    const float *pages; /* [block][2][Hkv][block_size][D], page_stride floats from block to block */
    int64_t page_stride, Hkv, D, block_size, G;
    float scale, soft_cap;
} heads_t;

/* The block after the one at `at`, or this one if it is the last. Blocks lie anywhere: unless it
 * is asked for, the processor does not see the next one coming. */
INLINE const float *next_block(const float *side, const heads_t *h, const int32_t *table,
                               int64_t at, int64_t length) {
    const int64_t block = at / h->block_size, next = block + 1;
    return side + table[next * h->block_size < length ? next : block] * h->page_stride;
}

INLINE void fetch(const float *from, int64_t floats) {
    for (int64_t i = 0; i < floats; i += 16) __builtin_prefetch(from + i, 0, 2);
}

/* One KV head for one token: G query heads q[G][D] over keys first..length - 1, out[G][D].
 * scores: room for G rows of `stride` floats, length - first rounded up to LANES. */
INLINE void attend(const heads_t *h, const int64_t D, const float *q, const int32_t *table,
                   int64_t head, int64_t first, int64_t length, float *scores, int64_t stride,
                   float *out) {
    const int64_t G = h->G, head_page = h->block_size * D, count = length - first;
    const float *all_keys = h->pages + head * head_page;
    const float *all_values = all_keys + h->Hkv * head_page;
    for (int64_t at = first; at < length;) {
        const int64_t block = at / h->block_size, offset = at % h->block_size;
        int64_t end = (block + 1) * h->block_size;
        if (end > length) end = length;
        const float *keys = all_keys + table[block] * h->page_stride + offset * D;
        const float *coming = next_block(all_keys, h, table, at, length) + offset * D;
        while (at < end) {
            const int64_t n = end - at < LANES ? end - at : LANES;
            const int64_t share = (n * D + G - 1) / G; /* of the next block, per query head */
            for (int64_t g = 0; g < G; g++) {
                fetch(coming + g * share, share);
                vec dots[LANES];
                /* Past the last key it is computed again, and not stored. */
#pragma GCC unroll 16
                for (int64_t i = 0; i < LANES; i++) {
                    const float *key = keys + (i < n ? i : n - 1) * D;
                    vec dot = load(q + g * D) * load(key);
#pragma GCC unroll 16
                    for (int64_t d = LANES; d < D; d += LANES) dot += load(q + g * D + d) * load(key + d);
                    dots[i] = dot;
                }
                float parts[LANES];
                store(parts, sums(dots) * h->scale);
                memcpy(scores + g * stride + at - first, parts, n * sizeof(float));
            }
            at += n;
            keys += n * D;
            coming += n * D;
        }
    }
    for (int64_t g = 0; g < G; g++) {
        float *row = scores + g * stride, highest = -INFINITY;
        if (h->soft_cap > 0.0f)
            for (int64_t i = 0; i < count; i++)
                row[i] = h->soft_cap * tanhf(row[i] / h->soft_cap);
        for (int64_t i = count; i < stride; i++) row[i] = -INFINITY;
        vec highs = splat(-INFINITY), totals = splat(0.0f);
        for (int64_t i = 0; i < stride; i += LANES) {
            const vec here = load(row + i);
            highs = choose(here > highs, here, highs);
        }
        for (int i = 0; i < LANES; i++) highest = highs[i] > highest ? highs[i] : highest;
        for (int64_t i = 0; i < stride; i += LANES) {
            const vec p = exponential(load(row + i) - highest);
            store(row + i, p);
            totals += p;
        }
        const float share = 1.0f / sum(totals);
        for (int64_t i = 0; i < stride; i += LANES) store(row + i, load(row + i) * share);
        memset(out + g * D, 0, D * sizeof(float));
    }
    for (int64_t at = first; at < length;) {
        const int64_t block = at / h->block_size, offset = at % h->block_size;
        int64_t end = (block + 1) * h->block_size;
        if (end > length) end = length;
        const float *values = all_values + table[block] * h->page_stride + offset * D;
        const int64_t keys = end - at, share = (keys * D + G - 1) / G;
        const float *coming = next_block(all_values, h, table, at, length) + offset * D;
        for (int64_t g = 0; g < G; g++) {
            fetch(coming + g * share, share);
            const float *weights = scores + g * stride + at - first;
            int64_t d = 0;
            for (; d + 4 * LANES <= D; d += 4 * LANES) {
                float *to = out + g * D + d;
                vec a = load(to), b = load(to + LANES), c = load(to + 2 * LANES),
                    e = load(to + 3 * LANES);
                for (int64_t i = 0; i < keys; i++) {
                    const float *value = values + i * D + d;
                    const vec weight = splat(weights[i]);
                    a += weight * load(value);
                    b += weight * load(value + LANES);
                    c += weight * load(value + 2 * LANES);
                    e += weight * load(value + 3 * LANES);
                }
                store(to, a);
                store(to + LANES, b);
                store(to + 2 * LANES, c);
                store(to + 3 * LANES, e);
            }
            for (; d < D; d += LANES) {
                vec a = load(out + g * D + d);
                for (int64_t i = 0; i < keys; i++) a += weights[i] * load(values + i * D + d);
                store(out + g * D + d, a);
            }
        }
        at = end;
    }
}

/* Causal attention of every token: row r has tokens starts[r]..starts[r + 1] - 1 of q[T][Hq][D]
 * (q_stride floats per token), the last of its seq_lens[r], and the blocks tables[slots[r]].
 * window: keys a token sees, itself included, 0 for all; soft_cap: 0 for none; D is a multiple of
 * LANES. Writes out[T][Hq][D]. Returns 0, or -1 without memory. */
int octavo_attention(const float *q, int64_t q_stride, const float *pages, int64_t page_stride,
                     const int32_t *starts, const int32_t *seq_lens, const int32_t *tables,
                     int64_t table_stride, const int64_t *slots, float *out, int64_t rows,
                     int64_t Hq, int64_t Hkv, int64_t D, int64_t block_size, float scale,
                     int64_t window, float soft_cap) {
    const heads_t heads = {pages, page_stride, Hkv, D, block_size, Hq / Hkv, scale, soft_cap};
    const int64_t tokens = starts[rows];
    int64_t longest = 0, keys = 0;
    int32_t *row_of = malloc((tokens + 1) * sizeof(int32_t));
    if (!row_of) return -1;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t length = seq_lens[r];
        for (int64_t t = starts[r]; t < starts[r + 1]; t++) row_of[t] = r;
        if (starts[r + 1] > starts[r] && length > longest) longest = length;
        keys += length * (starts[r + 1] - starts[r]);
    }
    const int64_t room = (longest + LANES - 1) / LANES * LANES;
    int failed = 0;
#pragma omp parallel if (keys > SMALL_KEYS)
    {
        float *scores = malloc((heads.G * room + 1) * sizeof(float));
        if (!scores) {
#pragma omp atomic write
            failed = 1;
        }
        /* Head by head, so that a thread finds a head's keys in its cache for the next token. The
         * longest come first: a row's last tokens. */
#pragma omp for schedule(dynamic, 4) collapse(2)
        for (int64_t head = 0; head < Hkv; head++)
            for (int64_t i = 0; i < tokens; i++) {
                if (!scores) continue;
                const int64_t t = tokens - 1 - i, r = row_of[t];
                const int64_t length = seq_lens[r] - (starts[r + 1] - 1 - t);
                const int64_t first = window && length > window ? length - window : 0;
                const int64_t stride = (length - first + LANES - 1) / LANES * LANES;
                const float *from = q + t * q_stride + head * heads.G * D;
                const int32_t *table = tables + slots[r] * table_stride;
                float *to = out + (t * Hq + head * heads.G) * D;
                /* The usual sizes as constants: their loops are unrolled. */
#define CASE(size) \
    case size: attend(&heads, size, from, table, head, first, length, scores, stride, to); break;
                switch (D) {
                    CASE(64) CASE(128) CASE(256)
                    default: attend(&heads, D, from, table, head, first, length, scores, stride, to);
                }
#undef CASE
            }
        free(scores);
    }
    free(row_of);
    return failed ? -1 : 0;
}
