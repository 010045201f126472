/* The highest logit of each row. */

#ifndef OCTAVO_SAMPLING_H
#define OCTAVO_SAMPLING_H

#include <math.h>

#include "vectors.h"

/* The first of the highest of logits[V], read from memory once; -1 if that is not a finite number
 * or any logit is none. */
static int64_t greedy_row(const float *logits, int64_t V) {
    enum { CHUNK = 64 * LANES }; /* looked through again, in the cache */
    int64_t best_chunk = 0;
    float best = -INFINITY;
    for (int64_t begin = 0; begin < V; begin += CHUNK) {
        const int64_t end = begin + CHUNK < V ? begin + CHUNK : V;
        vec high = splat(-INFINITY);
        ivec numbers = {0};
        numbers = ~numbers;
        int64_t i = begin;
        for (; i + LANES <= end; i += LANES) {
            const vec here = load(logits + i);
            high = larger(here, high);
            numbers &= here == here;
        }
        float top = highest(high);
        int all_numbers = 1;
        for (int lane = 0; lane < LANES; lane++) all_numbers &= numbers[lane] != 0;
        for (; i < end; i++) {
            if (logits[i] > top) top = logits[i];
            all_numbers &= logits[i] == logits[i];
        }
        if (!all_numbers) return -1;
        if (top > best) {
            best = top;
            best_chunk = begin;
        }
    }
    if (!isfinite(best)) return -1;
    int64_t token = best_chunk;
    while (logits[token] != best) token++;
    return token;
}

#endif
