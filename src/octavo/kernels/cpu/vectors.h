/* Vectors of floats: GCC's generic ones, as wide as the machine this is compiled for. */

#ifndef OCTAVO_VECTORS_H
#define OCTAVO_VECTORS_H

#include <stdint.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
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

INLINE vec load(const float *from) { return *(const vec_any *)from; }
INLINE void store(float *to, vec value) { *(vec_any *)to = value; }

/* Written out, for GCC makes `(vec){0} + value` an addition. */
INLINE vec splat(float v) {
#if LANES == 16
    return (vec){v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v};
#else
    return (vec){v, v, v, v, v, v, v, v};
#endif
}

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

/* The larger of each pair; b if either is not a number. */
INLINE vec larger(vec a, vec b) { return choose(a > b, a, b); }

/* The largest element. */
INLINE float highest(vec v) {
#if LANES == 16
    const ivec lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#else
    const ivec lane = {0, 1, 2, 3, 4, 5, 6, 7};
#endif
#pragma GCC unroll 4
    for (int distance = LANES / 2; distance > 1; distance /= 2)
        v = larger(v, __builtin_shuffle(v, lane ^ distance));
    return v[0] > v[1] ? v[0] : v[1];
}

/* A choice of lanes that is the same in every four: those of a second vector begin at LANES. */
#if LANES == 16
#define FOURS(a, b, c, d) \
    (ivec){a, b, c, d, a + 4, b + 4, c + 4, d + 4, a + 8, b + 8, c + 8, d + 8, a + 12, b + 12, \
           c + 12, d + 12}
#else
#define FOURS(a, b, c, d) (ivec){a, b, c, d, a + 4, b + 4, c + 4, d + 4}
#endif

/* Four floats of each of LANES / 4 places. */
INLINE vec gather_fours(const float *base, const int64_t *places) {
#if defined(__AVX512F__)
    __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(base + places[0]));
    v = _mm512_insertf32x4(v, _mm_loadu_ps(base + places[4]), 1);
    v = _mm512_insertf32x4(v, _mm_loadu_ps(base + places[8]), 2);
    return (vec)_mm512_insertf32x4(v, _mm_loadu_ps(base + places[12]), 3);
#elif defined(__AVX__)
    const __m256 v = _mm256_castps128_ps256(_mm_loadu_ps(base + places[0]));
    return (vec)_mm256_insertf128_ps(v, _mm_loadu_ps(base + places[4]), 1);
#else
    vec v;
    for (int i = 0; i < LANES / 4; i++)
        memcpy((float *)&v + 4 * i, base + places[4 * i], 4 * sizeof(float));
    return v;
#endif
}

/* Four neighbouring floats of each of LANES places: the first ones to lines[0], and so on. */
INLINE void transpose_fours(const float *base, const int64_t *places, vec *lines) {
    const vec a = gather_fours(base, places), b = gather_fours(base, places + 1);
    const vec c = gather_fours(base, places + 2), d = gather_fours(base, places + 3);
    const ivec low = FOURS(0, LANES, 1, LANES + 1), high = FOURS(2, LANES + 2, 3, LANES + 3);
    const ivec first = FOURS(0, 1, LANES, LANES + 1), second = FOURS(2, 3, LANES + 2, LANES + 3);
    const vec ab = __builtin_shuffle(a, b, low), cd = __builtin_shuffle(c, d, low);
    const vec AB = __builtin_shuffle(a, b, high), CD = __builtin_shuffle(c, d, high);
    lines[0] = __builtin_shuffle(ab, cd, first);
    lines[1] = __builtin_shuffle(ab, cd, second);
    lines[2] = __builtin_shuffle(AB, CD, first);
    lines[3] = __builtin_shuffle(AB, CD, second);
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

#endif
