// Operations on whole rows, one after another in one launch: what lies between products of matrices. A block takes a row,
// its threads the columns that they have in norm.cu, so that sums have the same order. Rows are kept in shared memory.
#include "norm.cuh"
#include "quantize.cuh"

// Where the values of an operation come from: memory, nothing (what was asked for is waited for), a row of shared memory,
// the same normalized, or the sum over experts.
enum { ROW_LOAD, ROW_WAIT, ROW_COPY, ROW_NORM, ROW_EXPERT_SUM };
// What is done with them, in this order, before they become a row of shared memory.
enum { ROW_ADD = 1, ROW_SCALE = 2, ROW_STORE = 4, ROW_QUANTIZE = 8, ROW_SAME_FACTOR = 16 };

// `Micro` in launch/row_program.rs. Rows in shared memory are numbered.
struct Micro {
    u32 code, flags, to, a, add;
    // ROW_NORM: added to the mean.
    float eps;
    // ROW_LOAD: from where; ROW_EXPERT_SUM: all experts' results.
    Rows rows;
    // ROW_EXPERT_SUM.
    Rows weights;
    // ROW_NORM: weights or none.
    const float *by;
    // ROW_SCALE: factors, the second or none.
    const float *scale_by;
    float scale;
    u32 padding;
    // ROW_STORE.
    Rows out;
    // ROW_QUANTIZE.
    i8 *codes;
    float4 *groups;
};

enum : int { MOST = 28, AHEAD = 4 };

struct RowProgram {
    // In memory: of parameters, each line would be waited for when it is first read.
    const Micro *micros;
    u32 count, kind, width;
    // Rows of shared memory that are computed.
    u32 rows;
    // Blocks that compute rows; those behind them bring near what is read next.
    u32 blocks, padding;
    Region ahead[AHEAD];
};

// Columns of a thread, four at a time: mostly once. A part of the code runs once a launch, so that fetching it counts.
#define EACH_COLUMN _Pragma("unroll 1") for (u32 i = 4 * threadIdx.x; i < width; i += 4 * blockDim.x)

__device__ __forceinline__ void copy16(float *to, const float *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
__device__ __forceinline__ float4 four(const float *from) { return *(const float4 *)from; }
__device__ __forceinline__ void put(float *to, float4 v) { *(float4 *)to = v; }

__device__ __forceinline__ float4 times(float4 v, float by) { return make_float4(v.x * by, v.y * by, v.z * by, v.w * by); }

// Loads where it stands: the compiler would put it off until the sums before have been made.
__device__ __forceinline__ void load_now(const float *x, const float *weight, float4 &v, float &w) {
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(x));
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(w) : "l"(weight));
}

// Four columns from `i` on of the sum over experts.
__device__ __forceinline__ float4 expert_sum(const Micro &m, u32 r, u32 width, u32 i) {
    const float *x = m.rows.row(r) + i, *weights = m.weights.row(r);
    const u32 experts = m.weights.width;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
    for (u32 first = 0; first < experts; first += 4) {
        float4 v[4];
        float w[4];
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            const u32 expert = first + k < experts ? first + k : first;
            load_now(x + expert * width, weights + expert, v[k], w[k]);
        }
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            if (first + k >= experts) break;
            sum.x = __fmaf_rn(w[k], v[k].x, sum.x), sum.y = __fmaf_rn(w[k], v[k].y, sum.y);
            sum.z = __fmaf_rn(w[k], v[k].z, sum.z), sum.w = __fmaf_rn(w[k], v[k].w, sum.w);
        }
    }
    return sum;
}

// `squares_of` of a row in whole fours.
__device__ __forceinline__ float squares_of_row(const float *a, u32 width) {
    float squares = 0.0f;
    EACH_COLUMN {
        const float4 v = four(a + i);
        squares = __fmaf_rn(v.x, v.x, squares), squares = __fmaf_rn(v.y, v.y, squares);
        squares = __fmaf_rn(v.z, v.z, squares), squares = __fmaf_rn(v.w, v.w, squares);
    }
    return squares;
}

// Rows of memory behind those that are computed hold the weights of norms: of the `n`th norm that has some.
extern "C" __global__ void __launch_bounds__(1024) row_program(const Step step, const __grid_constant__ RowProgram args) {
    extern __shared__ __align__(16) float memory[];
    start_next();
    const u32 r = blockIdx.x, width = args.width;
    if (r >= args.blocks) {
#pragma unroll 1
        for (int i = 0; i < AHEAD; i++) args.ahead[i].prefetch(r - args.blocks, gridDim.x - args.blocks);
        wait_for_inputs();
        return;
    }
    __shared__ __align__(16) u32 words[MOST * sizeof(Micro) / 4];
    for (u32 i = threadIdx.x; i < args.count * sizeof(Micro) / 4; i += blockDim.x) words[i] = __ldg((const u32 *)args.micros + i);
    __syncthreads();
    const Micro *micros = (const Micro *)words;
    // Weights are not written by kernels, so they are on their way before inputs are waited for.
    float *weights = memory + args.rows * width;
#pragma unroll 1
    for (u32 n = 0; n < args.count; n++) {
        const Micro &m = micros[n];
        if (m.code != ROW_NORM || !m.by) continue;
        EACH_COLUMN copy16(weights + i, m.by + i);
        weights += width;
    }
    weights = memory + args.rows * width;
    wait_for_inputs();
    const u32 count = r < step.count(args.kind) ? args.count : 0;
    float factor = 0.0f;
#pragma unroll 1
    for (u32 n = 0; n < count; n++) {
        const Micro &m = micros[n];
        const u32 code = m.code, flags = m.flags;
        float *to = memory + m.to * width;
        const float *a = memory + m.a * width, *add = memory + m.add * width;
        if (code == ROW_LOAD) {
            const float *from = m.rows.row(r);
            EACH_COLUMN copy16(to + i, from + i);
            continue;
        }
        if (code == ROW_WAIT) {
            // A thread reads what it has copied itself.
            asm volatile("cp.async.wait_all;" ::: "memory");
            continue;
        }
        // Norms of one row, one after another, have one factor.
        if (code == ROW_NORM && !(flags & ROW_SAME_FACTOR))
            factor = inverse_rms_of(block_sum(squares_of_row(a, width), blockDim.x), width, m.eps);
        const float scale = m.scale_by ? m.scale * *m.scale_by : m.scale;
        const Coded coded = {m.codes, m.groups, width, (width + 255) / 256 * 256};
        const u32 end = flags & ROW_QUANTIZE ? coded.n_pad : width;
#pragma unroll 1
        for (u32 i = 4 * threadIdx.x; i < end; i += 4 * blockDim.x) {
            float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (i < width) {
                v = code == ROW_EXPERT_SUM ? expert_sum(m, r, width, i) : four(a + i);
                if (code == ROW_NORM) {
                    v = times(v, factor);
                    if (m.by) {
                        const float4 w = four(weights + i);
                        v.x *= w.x, v.y *= w.y, v.z *= w.z, v.w *= w.w;
                    }
                }
                if (flags & ROW_ADD) {
                    const float4 w = four(add + i);
                    v.x = w.x + v.x, v.y = w.y + v.y, v.z = w.z + v.z, v.w = w.w + v.w;
                }
                if (flags & ROW_SCALE) v = times(v, scale);
                put(to + i, v);
                if (flags & ROW_STORE) put(m.out.row(r) + i, v);
            }
            if (flags & ROW_QUANTIZE) {
                const float own[4] = {v.x, v.y, v.z, v.w};
                quantize4(coded, r, i, own, __activemask());
            }
        }
        if (code == ROW_NORM && m.by) weights += width;
    }
    // Nothing is copied to where another block may be by then.
    asm volatile("cp.async.wait_all;" ::: "memory");
}
