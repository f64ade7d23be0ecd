// Arguments of norms, and their sums over a block.
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

// Sum over a block of whole warps, the same for every thread.
__device__ __forceinline__ float block_sum(float x) {
    __shared__ float parts[32];
    x = warp_sum(x);
    if (blockDim.x == 32) return x;
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : 0.0f);
}

// 1 / sqrt(mean + eps) of a sum of `n` squares.
__device__ __forceinline__ float inverse_rms_of(float squares, u32 n, float eps) {
    return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(squares, (float)n) + eps));
}

// Copies a float to shared memory.
__device__ __forceinline__ void copy4(float *to, const float *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}

// Writes pair `p` of a head, turned, from values that `value` gives, for pairs `first`, `first + each` and so on; then what
// does not turn.
template <typename Value>
__device__ __forceinline__ void turn_head(const Norm &args, const float *cosine, float *out, u32 first, u32 each, Value value) {
    const float *sine = cosine + args.pairs;
    for (u32 p = first; p < args.pairs; p += each) {
        u32 i = args.adjacent ? 2 * p : p, j = args.adjacent ? 2 * p + 1 : p + args.pairs;
        float a = value(i), b = value(j), c = cosine[p], s = sine[p];
        out[i] = a * c - b * s;
        out[j] = a * s + b * c;
    }
    for (u32 i = 2 * args.pairs + first; i < args.group; i += each) out[i] = value(i);
}
