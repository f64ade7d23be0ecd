// Which rows a block of threads multiplies. An entry is a choice of a row: row · top_k + choice, or the row itself where there
// are no experts.
#pragma once
#include "common.cuh"

// Up to `width` entries that are multiplied with one matrix.
struct Span {
    u32 matrix, first, count;
    const u32* entries;

    __device__ __forceinline__ u32 entry(u32 i) const { return entries ? entries[first + i] : first + i; }
};

// Span number `index`; false: nothing is left to do. ARGS has `kind`, `top_k`, `experts` and `list`.
template <typename ARGS>
__device__ __forceinline__ bool find_span(const Step& step, const ARGS& p, u32 index, u32 width, Span& span) {
    if (p.list) {
        // The number of spans, their most, (matrix, first, count) of each, entries: see mat_mul_lists.cu.
        if (index >= p.list[0]) return false;
        const u32* item = p.list + 2 + 3 * index;
        span.matrix = item[0], span.first = item[1], span.count = item[2];
        span.entries = p.list + 2 + 3 * p.list[1];
        return true;
    }
    span.entries = nullptr;
    if (p.experts.data) {
        // Read beside the number of rows and not behind it: rows of the bucket that the step has not are there, too.
        span.matrix = __float_as_uint(p.experts.row(index / p.top_k)[index % p.top_k]);
        span.first = index, span.count = 1;
        return index < step.count(p.kind) * p.top_k;
    }
    const u32 total = step.count(p.kind) * p.top_k;
    span.first = index * width, span.matrix = 0;
    if (span.first >= total) return false;
    span.count = total - span.first < width ? total - span.first : width;
    return true;
}

// Which row of the input an entry reads, where each choice is a row of its own or all share one.
template <typename ARGS> __device__ __forceinline__ u32 input_of(const ARGS& p, u32 entry) {
    return p.per_expert ? entry : entry / p.top_k;
}

// Where an entry writes.
template <typename ARGS> __device__ __forceinline__ float* output_of(const ARGS& p, u32 entry) {
    return p.out.row(entry / p.top_k) + (u64)(entry % p.top_k) * p.n_out;
}
