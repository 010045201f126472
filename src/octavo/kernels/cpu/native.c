/* Float32 kernels of the CPU: packed matrix product, norms, rotary embedding, paged attention.
 *
 * Every result is a function of its own row: sums run in one order whatever the number of rows or
 * threads.
 */

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "attention.h"
#include "elementwise.h"
#include "layers.h"
#include "products.h"
#include "sampling.h"
#include "vectors.h"

/* Work below these sizes is done by one thread: waking the others takes longer. */
enum { SMALL_ELEMENTS = 1 << 14, SMALL_KEYS = 1 << 10, SMALL_PRODUCTS = 1 << 18 };

int64_t octavo_lanes(void) { return LANES; }

int64_t octavo_panel(void) { return PANEL; }

/* Ask for large pages before the first touch: small ones cost a tenth of a step in lookups. */
void octavo_use_large_pages(void *memory, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t size = 2 << 20, begin = ((uintptr_t)memory + size - 1) / size * size;
    const uintptr_t end = ((uintptr_t)memory + bytes) / size * size;
    if (begin < end) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

/* See linear_t. */
void octavo_pack(const float *weight, float *packed, int64_t N, int64_t K) {
    const int64_t panels = (N + PANEL - 1) / PANEL;
    octavo_use_large_pages(packed, N * K * sizeof(float));
#pragma omp parallel for schedule(static)
    for (int64_t panel = 0; panel < panels; panel++) {
        const int64_t first = panel * PANEL, width = N - first < PANEL ? N - first : PANEL;
        float *to = packed + first * K;
        for (int64_t k = 0; k < K; k++)
            for (int64_t n = 0; n < width; n++) *to++ = weight[(first + n) * K + k];
    }
}

/* out[M][N] = x[M][K] . weight[N][K] + bias[N]; `packed` is octavo_pack's. */
void octavo_linear(const float *x, const float *packed, const float *bias, float *out, int64_t M,
                   int64_t N, int64_t K) {
    const linear_t linear = {packed, bias, N, K};
    int64_t counter = 0;
#pragma omp parallel
    linear_part(&linear, STORE, x, out, M, &counter, omp_get_num_threads());
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
    for (int64_t t = 0; t < T; t++) silu_row(x + t * 2 * I, x + t * 2 * I + I, out + t * I, I);
}

/* rope_token for T tokens of qkv[T][Hq + 2 Hkv][D]. */
void octavo_rope_cache(float *qkv, const float *q_norm, const float *k_norm, float eps,
                       const float *cos_sin, const int64_t *positions, const int64_t *slots,
                       float *pages, int64_t page_stride, int64_t T, int64_t Hq, int64_t Hkv,
                       int64_t D, int64_t block_size, int64_t rotary_dim, int is_neox) {
    const rope_t rope = {q_norm, k_norm, cos_sin,    pages,      page_stride, Hq,
                         Hkv,    D,      block_size, rotary_dim, eps,         is_neox};
    const int64_t width = (Hq + 2 * Hkv) * D;
#pragma omp parallel for schedule(static) if (T * width > SMALL_ELEMENTS)
    for (int64_t t = 0; t < T; t++) rope_token(&rope, qkv + t * width, positions[t], slots[t]);
}

/* Attention of every token of the rows; D is a multiple of LANES. Writes out[T][Hq][D]. Returns 0,
 * or -1 without memory. */
int octavo_attention(const float *q, int64_t q_stride, const float *pages, int64_t page_stride,
                     const int32_t *starts, const int32_t *seq_lens, const int32_t *tables,
                     int64_t table_stride, const int64_t *slots, float *out, int64_t rows,
                     int64_t Hq, int64_t Hkv, int64_t D, int64_t block_size, float scale,
                     int64_t window, float soft_cap) {
    const attention_t attention = {q,   q_stride, pages,      page_stride, out,      Hq,
                                   Hkv, D,        block_size, scale,       soft_cap, window};
    const rows_t all = {starts, seq_lens, tables, slots, table_stride, rows};
    int64_t counter = 0, keys = 0;
    plan_t plan;
    for (int64_t r = 0; r < rows; r++) keys += (int64_t)seq_lens[r] * (starts[r + 1] - starts[r]);
    const int64_t threads = keys > SMALL_KEYS ? omp_get_max_threads() : 1;
    if (make_plan(&attention, &all, threads, &plan)) return -1;
    float *scratch = scratch_memory(&plan, threads);
    if (scratch)
#pragma omp parallel num_threads(threads)
        attention_part(&attention, &plan, scratch + omp_get_thread_num() * plan.floats, &counter);
    free(scratch);
    free(plan.pieces);
    return scratch ? 0 : -1;
}

/* All layers of a decoder, whose heads have one shape and whose MLPs an inner size that is a
 * multiple of PANEL. Tokens of no row are computed as if they attended to nothing; the output of
 * tokens that are not read is not defined. Returns 0, or -1 without memory. */
int octavo_layers(const layer_t *layers, int64_t count, const group_t *groups, int64_t num_groups,
                  const step_t *step) {
    const layer_t *first = layers;
    const int64_t weights = first->qkv.N * first->qkv.K + 3 * first->down.N * first->down.K;
    const int64_t threads = step->T * weights > SMALL_PRODUCTS ? omp_get_max_threads() : 1;
    const int64_t attended = groups->rows.starts[groups->rows.rows], heads = first->out.K;
    stack_t stack = {.layers = layers, .groups = groups, .step = step};
    const int failed = prepare_stack(&stack, count, num_groups, threads);
    memset(step->attended + attended * heads, 0, (step->T - attended) * heads * sizeof(float));
    if (!failed)
#pragma omp parallel num_threads(threads)
        for (int64_t i = 0; i < count; i++)
            layer_part(&stack, layers + i, i + 1 == count, stack.counters + i * COUNTERS);
    if (!failed && step->read) return_read(step, first->qkv.K);
    free_stack(&stack, num_groups);
    return failed;
}

/* greedy_row of `rows` rows of logits, `stride` floats from row to row. */
void octavo_greedy(const float *logits, int64_t stride, int64_t *tokens, int64_t rows, int64_t V) {
#pragma omp parallel for schedule(static) if (rows * V > 4 * SMALL_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) tokens[r] = greedy_row(logits + r * stride, V);
}
