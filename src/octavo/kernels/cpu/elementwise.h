/* What lies between the products: norms, the gate of an MLP, rotary embedding with cache write. */

#ifndef OCTAVO_ELEMENTWISE_H
#define OCTAVO_ELEMENTWISE_H

#include <math.h>

#include "vectors.h"

/* out = x / rms(x) * weight; with `add`, x += add first. x[H] is written only then. */
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

/* out[I] = silu(gate[I]) * up[I]. */
static void silu_row(const float *gate, const float *up, float *out, int64_t I) {
    int64_t i = 0;
    for (; i + LANES <= I; i += LANES) store(out + i, silu_times(load(gate + i), load(up + i)));
    for (; i < I; i++) out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
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

/* How query and key heads are prepared, and where a layer's keys and values go. */
typedef struct {
    const float *q_norm, *k_norm; /* [D] or none */
    const float *cos_sin;         /* [positions][rotary_dim]: cosines, then sines */
    float *pages;                 /* [block][2][Hkv][block_size][D] */
    int64_t page_stride;          /* floats from block to block */
    int64_t Hq, Hkv, D, block_size, rotary_dim;
    float eps;
    int is_neox;
} rope_t;

/* Norm and rotate a token's query and key heads [Hq + 2 Hkv][D] in place; write its key and value
 * to their slot (-1: nowhere). */
static void rope_token(const rope_t *rope, float *heads, int64_t position, int64_t slot) {
    const int64_t D = rope->D, half = rope->rotary_dim / 2;
    const float *cos = rope->cos_sin + position * rope->rotary_dim;
    for (int64_t h = 0; h < rope->Hq + rope->Hkv; h++) {
        float *head = heads + h * D;
        const float *weight = h < rope->Hq ? rope->q_norm : rope->k_norm;
        if (weight) norm_row(head, 0, weight, head, D, rope->eps);
        rotate(head, cos, cos + half, half, rope->is_neox);
    }
    if (slot < 0) return;
    const int64_t block = slot / rope->block_size, offset = slot % rope->block_size;
    float *page = rope->pages + block * rope->page_stride + offset * D;
    for (int64_t h = 0; h < 2 * rope->Hkv; h++)
        memcpy(page + h * rope->block_size * D, heads + (rope->Hq + h) * D, D * sizeof(float));
}

#endif
