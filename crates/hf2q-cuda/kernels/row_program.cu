// Operations on whole rows, one after another in one launch: what lies between products of matrices. A block takes a row,
// its threads the columns that they have in norm.cu, so that sums have the same order. Rows are kept in shared memory.
#include "norm.cuh"
#include "quantize.cuh"

enum { ROW_LOAD, ROW_STORE, ROW_NORM, ROW_ADD, ROW_SCALE, ROW_EXPERT_SUM, ROW_QUANTIZE };

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

enum : int { MOST = 40, COLUMNS = 8 };

struct RowProgram {
    Micro micros[MOST];
    u32 count, kind, width, padding;
};

// COUNT: the columns of a thread.
#define EACH_COLUMN(BODY)                                                       \
    _Pragma("unroll") for (int j = 0; j < COLUMNS; j++) {                       \
        const u32 i = threadIdx.x + j * blockDim.x;                             \
        if (i < width) { BODY; }                                                \
    }

__device__ __forceinline__ void expert_sum(const Micro &m, u32 r, u32 width, float *to) {
    const float *x = m.rows.row(r), *weights = m.weights.row(r);
    float sums[COLUMNS];
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) sums[j] = 0.0f;
#pragma unroll 4
    for (u32 k = 0; k < m.weights.width; k++) {
        const float weight = weights[k];
        EACH_COLUMN(sums[j] = __fmaf_rn(weight, x[k * width + i], sums[j]))
    }
    EACH_COLUMN(to[i] = sums[j])
}

__device__ __forceinline__ void norm(const Micro &m, u32 width, const float *x, float *to) {
    float held[COLUMNS], weights[COLUMNS], squares = 0.0f;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
        const u32 i = threadIdx.x + j * blockDim.x;
        held[j] = i < width ? x[i] : 0.0f;
        weights[j] = m.by && i < width ? __ldg(m.by + i) : 1.0f;
    }
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) squares = __fmaf_rn(held[j], held[j], squares);
    const float factor = inverse_rms_of(block_sum(squares), width, m.value);
    EACH_COLUMN(to[i] = held[j] * factor * weights[j])
}

__device__ __forceinline__ void quantize(const Micro &m, u32 r, u32 width, const float *x) {
    const Coded to = {m.codes, m.groups, width, (width + 255) / 256 * 256};
    __syncthreads();
    for (u32 first = 4 * threadIdx.x; first < to.n_pad; first += 4 * blockDim.x) {
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = first < width ? x[first + i] : 0.0f;
        quantize4(to, r, first, v, __activemask());
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(1024) row_program(const Step step, const __grid_constant__ RowProgram args) {
    extern __shared__ float memory[];
    start_next();
    const u32 r = blockIdx.x, width = args.width;
    // Weights are not written by kernels, so they are brought near before inputs are waited for.
    for (u32 n = 0; n < args.count; n++) {
        const Micro &m = args.micros[n];
        if (m.code != ROW_NORM || !m.by) continue;
        for (u32 i = 32 * threadIdx.x; i < width; i += 32 * blockDim.x) asm volatile("prefetch.global.L2 [%0];" ::"l"(m.by + i));
    }
    wait_for_inputs();
    if (r >= step.count(args.kind)) return;
    // Rows that are read are on their way before the first is used.
#pragma unroll 1
    for (u32 n = 0; n < args.count; n++) {
        const Micro &m = args.micros[n];
        float *to = memory + m.to * width;
        const float *a = memory + m.a * width, *b = memory + m.b * width;
        switch (m.code) {
        case ROW_LOAD: {
            const float *from = m.rows.row(r);
            EACH_COLUMN(copy4(to + i, from + i))
            asm volatile("cp.async.commit_group;" ::: "memory");
            if (n + 1 == args.count || args.micros[n + 1].code != ROW_LOAD) asm volatile("cp.async.wait_group 0;" ::: "memory");
            break;
        }
        case ROW_STORE: {
            float *out = m.rows.row(r);
            EACH_COLUMN(out[i] = a[i])
            break;
        }
        case ROW_NORM: norm(m, width, a, to); break;
        case ROW_ADD: EACH_COLUMN(to[i] = a[i] + b[i]) break;
        case ROW_SCALE: {
            const float factor = m.by ? m.value * *m.by : m.value;
            EACH_COLUMN(to[i] = a[i] * factor)
            break;
        }
        case ROW_EXPERT_SUM: expert_sum(m, r, width, to); break;
        case ROW_QUANTIZE: quantize(m, r, width, a); break;
        }
    }
}
