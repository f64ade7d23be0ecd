// Root-mean-square norms of groups of columns: alone, with a residual added, and with a rotation by position; the
// rotation alone; and the table of angles that rotations read.
//
// A block has as many threads as the width of a group asks for (see norm.rs): its order of additions is fixed by that
// width. grid.x counts groups of all rows.
#include "common.cuh"

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

// Values of a thread that are read before any is used: all but those of very wide groups.
#define HELD 8

// 1 / sqrt(mean(x^2) + eps); `held` are the thread's first values.
__device__ __forceinline__ float inverse_rms(const float *x, u32 n, float eps, float (&held)[HELD]) {
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        u32 i = threadIdx.x + j * blockDim.x;
        held[j] = i < n ? x[i] : 0.0f;
    }
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < HELD; j++) squares = __fmaf_rn(held[j], held[j], squares);
    for (u32 i = threadIdx.x + HELD * blockDim.x; i < n; i += blockDim.x) squares = __fmaf_rn(x[i], x[i], squares);
    return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(block_sum(squares), (float)n) + eps));
}

// Writes every value of a group, made by `VALUE` of `value` (normalized) and its column `i`; `j` counts the thread's first ones.
#define WRITE(VALUE)                                                                        \
    for (int j = 0; j < HELD; j++) {                                                        \
        u32 i = threadIdx.x + j * blockDim.x;                                               \
        if (i < args.group) {                                                               \
            float value = held[j] * factor * weights[j];                                    \
            out[i] = (VALUE);                                                               \
        }                                                                                   \
    }                                                                                       \
    for (u32 i = threadIdx.x + HELD * blockDim.x; i < args.group; i += blockDim.x) {        \
        float value = normalized(args, x[i], factor, i);                                    \
        out[i] = (VALUE);                                                                   \
    }

// The thread's first weights, or ones: x · 1 is x. No kernel writes them, so they are read before inputs are waited for.
__device__ __forceinline__ void weights_of(const Norm &args, float (&weights)[HELD]) {
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        u32 i = threadIdx.x + j * blockDim.x;
        weights[j] = args.weight && i < args.group ? __ldg(args.weight + i) : 1.0f;
    }
}

__device__ __forceinline__ float normalized(const Norm &args, float x, float factor, u32 i) {
    float y = x * factor;
    return args.weight ? y * __ldg(args.weight + i) : y;
}

#define EACH_GROUP                                                          \
    u32 groups = args.x.width / args.group;                                 \
    u32 r = blockIdx.x / groups, first = blockIdx.x % groups * args.group;  \
    if (r >= step.count(args.kind)) return;                                 \
    const float *x = args.x.row(r) + first;                                 \
    float *out = args.out.row(r) + first

extern "C" __global__ void rms_norm(const Step step, const Norm args) {
    start_next();
    float weights[HELD];
    weights_of(args, weights);
    wait_for_inputs();
    EACH_GROUP;
    float held[HELD], factor = inverse_rms(x, args.group, args.eps, held);
#pragma unroll
    WRITE(value)
}

extern "C" __global__ void norm_add(const Step step, const Norm args) {
    start_next();
    float weights[HELD];
    weights_of(args, weights);
    wait_for_inputs();
    EACH_GROUP;
    const float *residual = args.residual.row(r) + first;
    float held[HELD], factor = inverse_rms(x, args.group, args.eps, held);
#pragma unroll
    WRITE(residual[i] + value)
}

// Writes pair `p` of `head`, turned, from values that `value` gives; then what does not turn.
template <typename Value>
__device__ __forceinline__ void turn(const Norm &args, const Step &step, u32 r, float *out, Value value) {
    const float *cosine = args.angles + (u64)step.row(args.kind, r) * 2 * args.pairs, *sine = cosine + args.pairs;
    for (u32 p = threadIdx.x; p < args.pairs; p += blockDim.x) {
        u32 i = args.adjacent ? 2 * p : p, j = args.adjacent ? 2 * p + 1 : p + args.pairs;
        float a = value(i), b = value(j), c = cosine[p], s = sine[p];
        out[i] = a * c - b * s;
        out[j] = a * s + b * c;
    }
    for (u32 i = 2 * args.pairs + threadIdx.x; i < args.group; i += blockDim.x) out[i] = value(i);
}

extern "C" __global__ void rope(const Step step, const Norm args) {
    begin();
    EACH_GROUP;
    turn(args, step, r, out, [&](u32 i) { return x[i]; });
}

extern "C" __global__ void norm_rope(const Step step, const Norm args) {
    begin();
    EACH_GROUP;
    float held[HELD], factor = inverse_rms(x, args.group, args.eps, held);
    turn(args, step, r, out, [&](u32 i) { return normalized(args, x[i], factor, i); });
}

struct Angles {
    // Angle per position of each pair.
    const double *frequencies;
    float *table;
    double magnitude;
    u32 pairs;
};

// A block takes pairs, grid.y rows of the step.
extern "C" __global__ void angles(const Step step, const Angles args) {
    begin();
    u32 p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= args.pairs) return;
    for (u32 r = blockIdx.y; r < step.count(ROWS_OF_STEP); r += gridDim.y) {
        double s, c;
        sincos((double)step.position(r) * args.frequencies[p], &s, &c);
        float *row = args.table + (u64)r * 2 * args.pairs;
        row[p] = (float)(c * args.magnitude);
        row[args.pairs + p] = (float)(s * args.magnitude);
    }
}
