// Root-mean-square norms of groups of columns: alone, with a residual added, and with a rotation by position; the
// rotation alone; and the table of angles that rotations read.
//
// A block has as many threads as the width of a group asks for (see norm.rs): its order of additions is fixed by that
// width. grid.x counts groups of all rows.
#include "norm.cuh"

// 1 / sqrt(mean(x^2) + eps) of a group.
__device__ __forceinline__ float inverse_rms(const Norm &args, const float *x) {
    float squares = squares_of(args.group, blockDim.x, [&](u32 i) { return x[i]; });
    return inverse_rms_of(block_sum(squares, blockDim.x), args.group, args.eps);
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
    begin();
    EACH_GROUP;
    float factor = inverse_rms(args, x);
    for (u32 i = threadIdx.x; i < args.group; i += blockDim.x) out[i] = normalized(args, x[i], factor, i);
}

extern "C" __global__ void norm_add(const Step step, const Norm args) {
    begin();
    EACH_GROUP;
    const float *residual = args.residual.row(r) + first;
    float factor = inverse_rms(args, x);
    for (u32 i = threadIdx.x; i < args.group; i += blockDim.x) out[i] = residual[i] + normalized(args, x[i], factor, i);
}

template <typename Value>
__device__ __forceinline__ void turn(const Norm &args, const Step &step, u32 r, float *out, Value value) {
    const float *cosine = args.angles + (u64)step.row(args.kind, r) * 2 * args.pairs;
    turn_head(args, cosine, out, threadIdx.x, blockDim.x, value);
}

extern "C" __global__ void rope(const Step step, const Norm args) {
    begin();
    EACH_GROUP;
    turn(args, step, r, out, [&](u32 i) { return x[i]; });
}

extern "C" __global__ void norm_rope(const Step step, const Norm args) {
    begin();
    EACH_GROUP;
    float factor = inverse_rms(args, x);
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
