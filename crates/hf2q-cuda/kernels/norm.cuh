// Arguments of norms, and their sums over a block.
//
// Of a group of n values, thread t of T takes values 4t to 4t + 4, then those 4T further, and adds their squares in this
// order; warps add in a tree, then the block. T follows from n: `threads` in launch/norm.rs.
#pragma once
#include "common.cuh"

// `Args` in launch/norm.rs.
struct Norm {
    Rows x, residual, out;
    // One for each column of a group, or none.
    const float *weight;
    u32 group;
    float eps;
    u32 kind;
    // Rotation: pairs of a group, whether they lie side by side, and for each row of the step the cosine of every
    // pair, then the sine of every pair.
    u32 pairs;
    u32 adjacent;
    const float *angles;
};

// Threads of a group of `n` values.
__device__ __forceinline__ u32 threads_of(u32 n) { return min((n + 127) / 128 * 32, 1024u); }

// The sum of squares over the first `threads` threads of a block, the same for all.
__device__ __forceinline__ float block_sum(float x, u32 threads) {
    __shared__ float parts[32];
    u32 lane = threadIdx.x % 32;
    x = warp_sum(x);
    // Sums of the call before have been read.
    __syncthreads();
    if (lane == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_sum(lane < threads / 32 ? parts[lane] : 0.0f);
}

// The squares of a thread; `value` gives each of `n` values.
template <typename Value> __device__ __forceinline__ float squares_of(u32 n, u32 threads, Value value) {
    float squares = 0.0f;
    if (threadIdx.x >= threads) return squares;
#pragma unroll 1
    for (u32 i = 4 * threadIdx.x; i < n; i += 4 * threads)
#pragma unroll
        for (u32 k = i; k < i + 4; k++) {
            float x = k < n ? value(k) : 0.0f;
            squares = __fmaf_rn(x, x, squares);
        }
    return squares;
}

// 1 / sqrt(mean + eps) of a sum of `n` squares.
__device__ __forceinline__ float inverse_rms_of(float squares, u32 n, float eps) {
    return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(squares, (float)n) + eps));
}

// Writes pair `p` of a head, turned, from values that `value` gives, for pairs `first`, `first + each` and so on; then what
// does not turn.
template <typename Value>
__device__ __forceinline__ void turn_head(const Norm &args, const float *cosine, float *out, u32 first, u32 each, Value value) {
    const float *sine = cosine + args.pairs;
#pragma unroll 1
    for (u32 p = first; p < args.pairs; p += each) {
        u32 i = args.adjacent ? 2 * p : p, j = args.adjacent ? 2 * p + 1 : p + args.pairs;
        float a = value(i), b = value(j), c = cosine[p], s = sine[p];
        out[i] = a * c - b * s;
        out[j] = a * s + b * c;
    }
#pragma unroll 1
    for (u32 i = 2 * args.pairs + first; i < args.group; i += each) out[i] = value(i);
}
