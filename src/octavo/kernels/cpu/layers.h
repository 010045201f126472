/* A stack of decoder layers in one parallel region: between two operations threads meet at a
 * barrier, which costs a fraction of waking them. */

#ifndef OCTAVO_LAYERS_H
#define OCTAVO_LAYERS_H

#include <omp.h>

#include "attention.h"
#include "elementwise.h"

/* A layer that norms what attention adds to the stream, and the norm behind it. */
typedef struct {
    linear_t qkv, out, gate_up, down;
    const float *mlp_norm, *next_norm; /* [H] */
    rope_t rope;
    float mlp_eps, next_eps, scale, soft_cap;
    int64_t window, group; /* see attention_t; the KV group */
} layer_t;

/* A KV group in a step. */
typedef struct {
    const int64_t *slots; /* [T]: where each token's key and value go */
    rows_t rows;
} group_t;

/* The tokens of a step and room for what is computed of them. */
typedef struct {
    int64_t T;
    const int64_t *positions;      /* [T] */
    float *x, *residual;           /* [T][H]: what is normed; the stream */
    float *qkv, *attended, *inner; /* [T][(Hq + 2 Hkv) D], [T][Hq D], [T][I] */
    const int64_t *read;           /* [num_read], ascending, or none: the tokens to be read */
    int64_t num_read;
} step_t;

/* What the threads of a step share. */
typedef struct {
    const layer_t *layers;
    const group_t *groups;
    const step_t *step;
    plan_t *plans;  /* of each group */
    float *scratch; /* `floats` for each thread */
    int64_t floats, *counters;
} stack_t;

enum { COUNTERS = 5 }; /* of a layer: operations whose work is taken piece by piece */

/* The rows that this thread works on where rows are divided evenly. */
INLINE share_t own_rows(int64_t T) {
    const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
    return (share_t){T * thread / threads, T * (thread + 1) / threads};
}

static void norm_part(float *x, const float *weight, float *out, int64_t T, int64_t H, float eps) {
    const share_t own = own_rows(T);
    for (int64_t t = own.next; t < own.end; t++)
        norm_row(x + t * H, 0, weight, out + t * H, H, eps);
}

static void rope_part(const rope_t *rope, float *qkv, const int64_t *positions,
                      const int64_t *slots, int64_t T) {
    const int64_t width = (rope->Hq + 2 * rope->Hkv) * rope->D;
    const share_t own = own_rows(T);
    for (int64_t t = own.next; t < own.end; t++)
        rope_token(rope, qkv + t * width, positions[t], slots[t]);
}

/* Behind the last attention only the tokens that are read matter: bring them to the front. */
static void keep_read(const step_t *s, int64_t heads, int64_t H) {
    for (int64_t i = 0; i < s->num_read; i++) {
        memmove(s->attended + i * heads, s->attended + s->read[i] * heads, heads * sizeof(float));
        memmove(s->residual + i * H, s->residual + s->read[i] * H, H * sizeof(float));
    }
}

/* And what became of them back to their places. */
static void return_read(const step_t *s, int64_t H) {
    for (int64_t i = s->num_read - 1; i >= 0; i--)
        memmove(s->x + s->read[i] * H, s->x + i * H, H * sizeof(float));
}

/* This thread's part of a layer. */
static void layer_part(const stack_t *stack, const layer_t *l, int is_last, int64_t *counters) {
    const step_t *s = stack->step;
    const group_t *group = stack->groups + l->group;
    const rope_t *rope = &l->rope;
    const int64_t H = l->qkv.K, threads = omp_get_num_threads();
    int64_t T = s->T;
    float *scratch = stack->scratch + omp_get_thread_num() * stack->floats;
    const attention_t attention = {
        s->qkv,   l->qkv.N, rope->pages,      rope->page_stride, s->attended,  rope->Hq,
        rope->Hkv, rope->D, rope->block_size, l->scale,          l->soft_cap, l->window};

    linear_part(&l->qkv, STORE, s->x, s->qkv, T, counters, threads);
#pragma omp barrier
    rope_part(rope, s->qkv, s->positions, group->slots, T);
#pragma omp barrier
    attention_part(&attention, stack->plans + l->group, scratch, counters + 1);
#pragma omp barrier
    if (is_last && s->read) {
#pragma omp single
        keep_read(s, l->out.K, H);
        T = s->num_read;
    }
    linear_part(&l->out, ADD, s->attended, s->residual, T, counters + 2, threads);
#pragma omp barrier
    norm_part(s->residual, l->mlp_norm, s->x, T, H, l->mlp_eps);
#pragma omp barrier
    gated_part(&l->gate_up, s->x, s->inner, T, counters + 3, threads);
#pragma omp barrier
    linear_part(&l->down, ADD, s->inner, s->residual, T, counters + 4, threads);
#pragma omp barrier
    norm_part(s->residual, l->next_norm, s->x, T, H, l->next_eps);
#pragma omp barrier
}

/* Plans and scratch memory of a step, for `threads` threads. Returns 0, or -1 without memory. */
static int prepare_stack(stack_t *stack, int64_t layers, int64_t groups, int64_t threads) {
    const rope_t *rope = &stack->layers->rope;
    const attention_t sizes = {.Hq = rope->Hq, .Hkv = rope->Hkv, .D = rope->D};
    stack->floats = 0;
    stack->counters = calloc(layers * COUNTERS, sizeof(int64_t));
    stack->plans = calloc(groups, sizeof(plan_t));
    if (!stack->counters || !stack->plans) return -1;
    for (int64_t g = 0; g < groups; g++) {
        if (make_plan(&sizes, &stack->groups[g].rows, threads, stack->plans + g)) return -1;
        if (stack->plans[g].floats > stack->floats) stack->floats = stack->plans[g].floats;
    }
    stack->scratch = aligned_alloc(64, threads * stack->floats * sizeof(float) + 64);
    return stack->scratch ? 0 : -1;
}

static void free_stack(stack_t *stack, int64_t groups) {
    for (int64_t g = 0; stack->plans && g < groups; g++) free(stack->plans[g].pieces);
    free(stack->plans);
    free(stack->counters);
    free(stack->scratch);
}

#endif
