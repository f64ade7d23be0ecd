// Operations on whole rows, one after another in one launch: what lies between products of matrices. A block takes a row,
// its threads the columns that they have in norm.cu, so that sums have the same order. Rows are kept in shared memory.
#include "norm.cuh"
#include "quantize.cuh"

enum { ROW_LOAD, ROW_STORE, ROW_NORM, ROW_ADD, ROW_SCALE, ROW_EXPERT_SUM, ROW_QUANTIZE, ROW_WAIT };

// `Micro` in launch/row_program.rs. Rows in shared memory are numbered.
struct Micro {
    u32 code, to, a, b;
    // ROW_LOAD, ROW_STORE: where. ROW_EXPERT_SUM: all experts' results.
    Rows rows;
    union {
        // ROW_NORM: weights or none. ROW_SCALE: a factor or none. ROW_EXPERT_SUM: the experts' weights.
        const float *by;
        i8 *codes;
    };
    union {
        // ROW_EXPERT_SUM.
        Rows weights;
        float4 *groups;
    };
    // ROW_NORM: added to the mean. ROW_SCALE: a factor.
    float value;
    u32 padding;
};

enum : int { MOST = 40, AHEAD = 4 };

struct RowProgram {
    Micro micros[MOST];
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

__device__ __forceinline__ void expert_sum(const Micro &m, u32 r, u32 width, float *to) {
    const float *x = m.rows.row(r), *weights = m.weights.row(r);
    const u32 experts = m.weights.width;
    EACH_COLUMN {
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
        for (u32 first = 0; first < experts; first += 8) {
            float4 v[8];
            float w[8];
#pragma unroll
            for (u32 k = 0; k < 8; k++) {
                const u32 expert = first + k < experts ? first + k : first;
                v[k] = four(x + expert * width + i), w[k] = weights[expert];
            }
#pragma unroll
            for (u32 k = 0; k < 8; k++) {
                if (first + k >= experts) break;
                sum.x = __fmaf_rn(w[k], v[k].x, sum.x), sum.y = __fmaf_rn(w[k], v[k].y, sum.y);
                sum.z = __fmaf_rn(w[k], v[k].z, sum.z), sum.w = __fmaf_rn(w[k], v[k].w, sum.w);
            }
        }
        put(to + i, sum);
    }
}

__device__ __forceinline__ void quantize(const Micro &m, u32 r, u32 width, const float *x) {
    const Coded to = {m.codes, m.groups, width, (width + 255) / 256 * 256};
#pragma unroll 1
    for (u32 i = 4 * threadIdx.x; i < to.n_pad; i += 4 * blockDim.x) {
        const float4 own = i < width ? four(x + i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const float v[4] = {own.x, own.y, own.z, own.w};
        quantize4(to, r, i, v, __activemask());
    }
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
    // Weights are not written by kernels, so they are on their way before inputs are waited for.
    float *weights = memory + args.rows * width;
#pragma unroll 1
    for (u32 n = 0; n < args.count; n++) {
        const Micro &m = args.micros[n];
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
        const Micro &m = args.micros[n];
        float *to = memory + m.to * width;
        const float *a = memory + m.a * width, *b = memory + m.b * width;
        if (m.code == ROW_LOAD) {
            const float *from = m.rows.row(r);
            EACH_COLUMN copy16(to + i, from + i);
        } else if (m.code == ROW_STORE) {
            float *out = m.rows.row(r);
            EACH_COLUMN put(out + i, four(a + i));
        } else if (m.code == ROW_NORM) {
            // Norms of one row, one after another, have one factor.
            if (!m.b) factor = inverse_rms_of(block_sum(squares_of(width, blockDim.x, [&](u32 i) { return a[i]; }), blockDim.x), width, m.value);
            EACH_COLUMN {
                float4 v = four(a + i);
                v.x *= factor, v.y *= factor, v.z *= factor, v.w *= factor;
                if (m.by) {
                    const float4 w = four(weights + i);
                    v.x *= w.x, v.y *= w.y, v.z *= w.z, v.w *= w.w;
                }
                put(to + i, v);
            }
            if (m.by) weights += width;
        } else if (m.code == ROW_EXPERT_SUM) {
            expert_sum(m, r, width, to);
        } else if (m.code == ROW_QUANTIZE) {
            quantize(m, r, width, a);
        } else if (m.code == ROW_WAIT) {
            // A thread reads what it has copied itself.
            asm volatile("cp.async.wait_all;" ::: "memory");
        } else if (m.code == ROW_ADD) {
            EACH_COLUMN {
                const float4 v = four(a + i), w = four(b + i);
                put(to + i, make_float4(v.x + w.x, v.y + w.y, v.z + w.z, v.w + w.w));
            }
        } else {
            const float by = m.by ? m.value * *m.by : m.value;
            EACH_COLUMN {
                const float4 v = four(a + i);
                put(to + i, make_float4(v.x * by, v.y * by, v.z * by, v.w * by));
            }
        }
    }
    // Nothing is copied to where another block may be by then.
    asm volatile("cp.async.wait_all;" ::: "memory");
}
