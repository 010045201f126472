/* Products with packed weights: 4 or 8 bits a weight, a scale (and a minimum) for every few inputs.
 *
 * x is rounded to 16 bits with a scale per 32 inputs; what is multiplied and summed within such a
 * group are integers, exactly. Groups are added in float32, in one order whatever the number of
 * rows or threads, so that a row's result is a function of that row. Vectors are GCC's generic
 * ones; the instructions that have no such form are chosen below.
 */

#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#if defined(__AVX512BW__)
#define LANES 16
#elif defined(__AVX2__) && defined(__F16C__)
#define LANES 8
#else
#error "packed weights need AVX2 and F16C"
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float vec_any __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef int16_t svec __attribute__((vector_size(4 * LANES)));
typedef int16_t svec_any __attribute__((vector_size(4 * LANES), aligned(1), may_alias));
typedef uint16_t uvec __attribute__((vector_size(4 * LANES)));
typedef int16_t half_vec __attribute__((vector_size(2 * LANES)));

#define INLINE static inline __attribute__((always_inline))

enum {
    PANEL = 16,           /* outputs whose weights lie together */
    SPAN = 32,            /* inputs of a record, and of a scale of x */
    PAIRS = SPAN / 2,     /* vectors of a record: an output's lane has two inputs */
    MAX_ROWS = 8,         /* of a tile */
    CACHED = 1 << 17,     /* numbers of x that stay in a core's cache while all weights pass */
    SMALL = 1 << 14,      /* numbers that one thread rounds sooner than others wake */
    WIDEST = 32767        /* magnitude of a number of x */
};

enum { NO_MINIMUM, STORED_MINIMUM, MINUS_EIGHT_SCALES };

/* `rows` outputs in panels of records: PANEL outputs by SPAN inputs. A record has the codes in
 * 16-bit words, each with the codes of one output for the inputs k, k + 2, ... from its low bits
 * up; then the scales of every group of inputs, PANEL at a time, then as many minimums. */
typedef struct {
    const uint8_t *records;
    int64_t rows;
    int64_t first; /* column of the result that output 0 has */
    int32_t bits;  /* 4: codes 0..15; 8: codes -128..127 */
    int32_t group; /* inputs of a scale: 32, or 16 without minimums */
    int32_t wide;  /* scales and minimums are float32, not float16 */
    int32_t minimum;
} part_t;

/* Rounded rows: x[k] is about codes[k] * scales[k / SPAN]; sums: of the rounded numbers. */
typedef struct {
    int16_t *codes;
    float *scales, *sums;
} rounded_t;

INLINE vec load(const float *from) { return *(const vec_any *)from; }
INLINE void store(float *to, vec value) { *(vec_any *)to = value; }

INLINE vec splat(float value) {
#if LANES == 16
    return (vec)_mm512_set1_ps(value);
#else
    return (vec)_mm256_set1_ps(value);
#endif
}

/* sums + the products of pairs of 16-bit numbers: two of `pair` with every lane's two. */
INLINE ivec add_pairs(ivec sums, svec weights, const int16_t *pair) {
    int32_t both;
    memcpy(&both, pair, sizeof both);
#if LANES == 16 && defined(__AVX512VNNI__)
    return (ivec)_mm512_dpwssd_epi32((__m512i)sums, (__m512i)weights, _mm512_set1_epi32(both));
#elif LANES == 16
    return sums + (ivec)_mm512_madd_epi16((__m512i)weights, _mm512_set1_epi32(both));
#elif defined(__AVXVNNI__)
    return (ivec)_mm256_dpwssd_avx_epi32((__m256i)sums, (__m256i)weights, _mm256_set1_epi32(both));
#else
    return sums + (ivec)_mm256_madd_epi16((__m256i)weights, _mm256_set1_epi32(both));
#endif
}

INLINE vec load_numbers(const uint8_t *from, int wide) {
    if (wide) return load((const float *)from);
#if LANES == 16
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
#else
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
#endif
}

static int64_t code_bytes(const part_t *part) { return PANEL * SPAN * part->bits / 8; }
static int64_t number_bytes(const part_t *part) { return part->wide ? 4 : 2; }

static int64_t record_bytes(const part_t *part) {
    const int64_t scales = SPAN / part->group;
    return code_bytes(part) +
           PANEL * number_bytes(part) * (scales + (part->minimum == STORED_MINIMUM));
}

int64_t octavo_packed_bytes(const part_t *part, int64_t K) {
    return (part->rows + PANEL - 1) / PANEL * (K / SPAN) * record_bytes(part);
}

const char *octavo_packed_name(void) {
#if defined(__AVX512VNNI__)
    return "AVX-512 VNNI";
#elif LANES == 16
    return "AVX-512";
#elif defined(__AVXVNNI__)
    return "AVX-VNNI";
#else
    return "AVX2";
#endif
}

/* Fill a part's records, which are zero, from codes[rows][K] (of 4 bits one a byte) and numbers
 * [rows][K / group], float16 or float32 as the part says. */
void octavo_pack_codes(const part_t *part, const uint8_t *codes, const uint8_t *scales,
                       const uint8_t *minimums, uint8_t *records, int64_t K) {
    const int64_t spans = K / SPAN, bytes = record_bytes(part), size = number_bytes(part);
    const int64_t per_span = SPAN / part->group, per_word = 16 / part->bits;
    const int64_t panels = (part->rows + PANEL - 1) / PANEL;
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < panels * spans; at++) {
        uint8_t *record = records + at * bytes, *numbers = record + code_bytes(part);
        const int64_t first = at / spans * PANEL, span = at % spans;
        const int64_t left = part->rows - first, width = left < PANEL ? left : PANEL;
        for (int64_t n = 0; n < width; n++) {
            const uint8_t *from = codes + (first + n) * K + span * SPAN;
            for (int64_t k = 0; k < SPAN; k++) {
                const int64_t pair = k / 2, shift = pair % per_word * part->bits;
                uint8_t *word = record + (pair / per_word * PANEL * 2 + n * 2 + k % 2) * 2;
                word[shift / 8] |= (uint8_t)(from[k] << shift % 8);
            }
            for (int64_t g = 0; g < per_span; g++)
                memcpy(numbers + (g * PANEL + n) * size,
                       scales + ((first + n) * spans * per_span + span * per_span + g) * size,
                       size);
            if (part->minimum == STORED_MINIMUM)
                memcpy(numbers + (per_span * PANEL + n) * size,
                       minimums + ((first + n) * spans + span) * size, size);
        }
    }
}

/* Ask for large pages before the first touch: small ones cost a tenth of a step in lookups. */
void octavo_use_large_pages(uint8_t *memory, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t size = 2 << 20, begin = ((uintptr_t)memory + size - 1) / size * size;
    const uintptr_t end = (uintptr_t)(memory + bytes) / size * size;
    if (begin < end) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

INLINE ivec nearest(vec x) {
#if LANES == 16
    return (ivec)_mm512_cvtps_epi32((__m512)x);
#else
    return (ivec)_mm256_cvtps_epi32((__m256)x);
#endif
}

INLINE int32_t greatest(ivec v) {
#if LANES == 16
    return _mm512_reduce_max_epi32((__m512i)v);
#else
    int32_t most = v[0];
    for (int i = 1; i < LANES; i++) most = v[i] > most ? v[i] : most;
    return most;
#endif
}

INLINE int32_t total(ivec v) {
#if LANES == 16
    return _mm512_reduce_add_epi32((__m512i)v);
#else
    int32_t sum = 0;
    for (int i = 0; i < LANES; i++) sum += v[i];
    return sum;
#endif
}

/* SPAN numbers of x to 16 bits. A number that is not finite makes the scale NaN, and so the row. */
INLINE void round_span(const float *x, int16_t *codes, float *scale, float *sum) {
    /* Magnitudes order like their bits, with infinity and NaN above all numbers. */
    ivec high = {0};
    for (int i = 0; i < SPAN; i += LANES) {
        const ivec bits = (ivec)load(x + i) & 0x7fffffff, more = bits > high;
        high = (bits & more) | (high & ~more);
    }
    const int32_t bits = greatest(high);
    float widest;
    memcpy(&widest, &bits, sizeof widest);
    if (!(widest <= FLT_MAX)) widest = NAN;
    const float factor = WIDEST / widest;
    const vec usable = splat(factor <= FLT_MAX ? factor : 0.0f);
    ivec sums = {0};
    for (int i = 0; i < SPAN; i += LANES) {
        const ivec whole = nearest(load(x + i) * usable);
        const half_vec narrow = __builtin_convertvector(whole, half_vec);
        memcpy(codes + i, &narrow, sizeof narrow);
        sums += whole;
    }
    *scale = widest / WIDEST;
    *sum = *scale * (float)total(sums);
}

static void round_rows(const float *x, rounded_t to, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
        round_span(x + i * SPAN, to.codes + i * SPAN, to.scales + i, to.sums + i);
}

/* The weights of LANES outputs for SPAN inputs, as 16-bit numbers. */
INLINE void unpack(const int bits, const uint8_t *codes, svec *weights) {
    const int per_word = 16 / bits;
#pragma GCC unroll 8
    for (int b = 0; b < PAIRS / per_word; b++) {
        const svec words = *(const svec_any *)(codes + b * PANEL * 4);
        if (bits == 4) {
#pragma GCC unroll 4
            for (int n = 0; n < 4; n++) weights[4 * b + n] = (svec)((uvec)words >> 4 * n & 15);
        } else {
            weights[2 * b] = words << 8 >> 8;
            weights[2 * b + 1] = words >> 8;
        }
    }
}

/* `rows` rows of x times LANES outputs of a panel; the sums stay in registers. */
INLINE void tile(const int rows, const int bits, const int group, const int minimum,
                 const part_t *part, const uint8_t *panel, int64_t lane, rounded_t x, int64_t K,
                 const float *bias, float *out, int64_t N, int64_t width) {
    const int64_t spans = K / SPAN, bytes = record_bytes(part), size = number_bytes(part);
    const int per_span = SPAN / group;
    /* Sums that wait for one another; which of them an integer enters makes no difference. */
    const int chains = rows == 1 ? 4 : rows < 4 ? 2 : 1;
    vec sums[MAX_ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) sums[r] = splat(0.0f);
    for (int64_t s = 0; s < spans; s++) {
        const uint8_t *record = panel + s * bytes;
        const uint8_t *numbers = record + PANEL * SPAN * bits / 8 + lane * size;
        svec weights[PAIRS];
        unpack(bits, record + lane * 4, weights);
        vec scales[2], least = splat(0.0f);
        for (int g = 0; g < per_span; g++)
            scales[g] = load_numbers(numbers + g * PANEL * size, part->wide);
        if (minimum)
            least = part->minimum == STORED_MINIMUM
                        ? load_numbers(numbers + per_span * PANEL * size, part->wide)
                        : scales[0] * -8.0f;
#pragma GCC unroll 2
        for (int g = 0; g < per_span; g++) {
            ivec whole[MAX_ROWS][4] = {0};
#pragma GCC unroll 16
            for (int p = g * group / 2; p < (g + 1) * group / 2; p++)
#pragma GCC unroll 8
                for (int r = 0; r < rows; r++)
                    whole[r][p % chains] = add_pairs(whole[r][p % chains], weights[p],
                                                     x.codes + r * K + s * SPAN + 2 * p);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
                for (int c = 1; c < chains; c++) whole[r][0] += whole[r][c];
                const vec step = scales[g] * splat(x.scales[r * spans + s]);
                sums[r] += __builtin_convertvector(whole[r][0], vec) * step;
            }
        }
        if (minimum) {
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) sums[r] += least * splat(x.sums[r * spans + s]);
        }
    }
    float result[LANES], added[LANES] = {0};
    if (bias) memcpy(added, bias, width * sizeof(float));
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        if (bias) sums[r] += load(added);
        if (width == LANES) {
            store(out + r * N, sums[r]);
        } else {
            store(result, sums[r]);
            memcpy(out + r * N, result, width * sizeof(float));
        }
    }
}

typedef struct {
    const part_t *part;
    const uint8_t *panel;
    rounded_t x;
    int64_t K;
    const float *bias;
    float *out;
    int64_t N, width;
} work_t;

/* A panel's outputs for `rows` rows; one function for each kind of weight. */
#define KIND(name, bits, group, minimum) \
    static void name(const work_t *w, int64_t rows) { \
        for (int64_t lane = 0; lane < w->width; lane += LANES) { \
            const int64_t left = w->width - lane, width = left < LANES ? left : LANES; \
            const float *bias = w->bias ? w->bias + lane : 0; \
            switch (rows) { \
                ROWS(1, bits, group, minimum) ROWS(2, bits, group, minimum) \
                ROWS(3, bits, group, minimum) ROWS(4, bits, group, minimum) \
                ROWS(5, bits, group, minimum) ROWS(6, bits, group, minimum) \
                ROWS(7, bits, group, minimum) ROWS(8, bits, group, minimum) \
            } \
        } \
    }
#define ROWS(count, bits, group, minimum) \
    case count: \
        tile(count, bits, group, minimum, w->part, w->panel, lane, w->x, w->K, bias, \
             w->out + lane, w->N, width); \
        break;
KIND(four_bits, 4, 32, 1)
KIND(eight_bits, 8, 32, 0)
KIND(eight_bits_minimum, 8, 32, 1)
KIND(eight_bits_half, 8, 16, 0)
#undef ROWS
#undef KIND

static void panel_product(work_t work, int64_t M) {
    const part_t *part = work.part;
    void (*product)(const work_t *, int64_t) =
        part->bits == 4 ? four_bits
        : part->group == 16 ? eight_bits_half
        : part->minimum ? eight_bits_minimum : eight_bits;
    /* Tiles of nearly equal height. */
    const int64_t tiles = (M + MAX_ROWS - 1) / MAX_ROWS, spans = work.K / SPAN;
    const work_t all = work;
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t begin = M * t / tiles, rows = M * (t + 1) / tiles - begin;
        work.x.codes = all.x.codes + begin * work.K;
        work.x.scales = all.x.scales + begin * spans;
        work.x.sums = all.x.sums + begin * spans;
        work.out = all.out + begin * work.N;
        product(&work, rows);
    }
}

/* Columns of out[M][N] = x[M][K] . weights + bias[N]: those of the parts, the others are left as
 * they are. K is a multiple of SPAN. Returns 0, or -1 without memory. */
int octavo_packed_linear(const float *x, const part_t *parts, int64_t count, const float *bias,
                         float *out, int64_t M, int64_t N, int64_t K) {
    const int64_t spans = K / SPAN;
    rounded_t all;
    all.codes = malloc(M * (K * sizeof(int16_t) + 2 * spans * sizeof(float)) + 1);
    if (!all.codes) return -1;
    all.scales = (float *)(all.codes + M * K);
    all.sums = all.scales + M * spans;
    int64_t height = CACHED / K / MAX_ROWS * MAX_ROWS, panels = 0;
    if (height < 4 * MAX_ROWS) height = 4 * MAX_ROWS;
    const int64_t blocks = (M + height - 1) / height;
    for (int64_t i = 0; i < count; i++) panels += (parts[i].rows + PANEL - 1) / PANEL;
    const int small = M * K <= SMALL;
    if (small) round_rows(x, all, 0, M * spans);
#pragma omp parallel
    {
        if (!small) {
#pragma omp for schedule(static)
            for (int64_t row = 0; row < M; row++)
                round_rows(x, all, row * spans, (row + 1) * spans);
        }
#pragma omp for schedule(static) collapse(2)
        for (int64_t block = 0; block < blocks; block++)
            for (int64_t p = 0; p < panels; p++) {
                const part_t *part = parts;
                int64_t panel = p;
                for (; panel >= (part->rows + PANEL - 1) / PANEL; part++)
                    panel -= (part->rows + PANEL - 1) / PANEL;
                const int64_t row = M * block / blocks, rows = M * (block + 1) / blocks - row;
                const int64_t left = part->rows - panel * PANEL;
                const int64_t column = part->first + panel * PANEL;
                const rounded_t some = {all.codes + row * K, all.scales + row * spans,
                                        all.sums + row * spans};
                const work_t work = {part,
                                     part->records + panel * spans * record_bytes(part),
                                     some,
                                     K,
                                     bias ? bias + column : 0,
                                     out + row * N + column,
                                     N,
                                     left < PANEL ? left : PANEL};
                panel_product(work, rows);
            }
    }
    free(all.codes);
    return 0;
}

INLINE float number(const uint8_t *from, int wide) {
    float value;
    uint16_t half;
    if (wide) {
        memcpy(&value, from, sizeof value);
        return value;
    }
    memcpy(&half, from, sizeof half);
    return _cvtsh_ss(half);
}

/* out[T][K]: the weights of outputs ids[T], all of them of the part. */
void octavo_packed_rows(const part_t *part, const int64_t *ids, float *out, int64_t T, int64_t K) {
    const int64_t spans = K / SPAN, bytes = record_bytes(part), size = number_bytes(part);
    const int64_t per_word = 16 / part->bits, per_span = SPAN / part->group;
#pragma omp parallel for schedule(static) if (T * K > SMALL)
    for (int64_t t = 0; t < T; t++) {
        const int64_t n = ids[t] % PANEL;
        const uint8_t *panel = part->records + ids[t] / PANEL * spans * bytes;
        for (int64_t s = 0; s < spans; s++) {
            const uint8_t *record = panel + s * bytes, *numbers = record + code_bytes(part);
            float scales[2], least = 0.0f;
            for (int64_t g = 0; g < per_span; g++)
                scales[g] = number(numbers + (g * PANEL + n) * size, part->wide);
            if (part->minimum == STORED_MINIMUM)
                least = number(numbers + (per_span * PANEL + n) * size, part->wide);
            else if (part->minimum)
                least = scales[0] * -8.0f;
            for (int64_t k = 0; k < SPAN; k++) {
                const int64_t pair = k / 2, shift = pair % per_word * part->bits;
                const uint8_t *word = record + (pair / per_word * PANEL * 2 + n * 2 + k % 2) * 2;
                const int32_t byte = word[shift / 8];
                const int32_t code = part->bits == 4 ? byte >> shift % 8 & 15 : (int8_t)byte;
                out[t * K + s * SPAN + k] = (float)code * scales[k / part->group] + least;
            }
        }
    }
}
