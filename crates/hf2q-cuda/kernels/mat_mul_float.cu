// Products of f32, f16 and bf16 weights with f32 rows, in f32.
//
// k is cut into pieces of 8; lane `i` of a warp adds the products of pieces i, i + 32, … in ascending k, and lanes are added
// in a fixed tree. A warp multiplies OUTS weight rows with up to ROWS entries, so that each weight is read once for all.
//
// grid: (blocks of weight rows, spans); block: some warps.
#include "mat_mul_spans.cuh"
#include "raw.cuh"

// `FloatProduct` in launch/mat_mul_float.rs.
struct FloatProduct {
    const u8* weight;
    u64 matrix_bytes;
    Rows x;
    Rows out;
    Rows experts;
    const u32* list;
    u32 kind, n_in, n_out, top_k, per_expert;
};

// Eight values from `k` on. ALIGNED: all are there, at an address that is a multiple of 16; else zeros behind the last.
template <int TYPE, bool ALIGNED> __device__ __forceinline__ void piece(const u8* row, u32 k, u32 n, float (&v)[8]) {
    constexpr int BYTES = Raw<TYPE>::BYTES;
    const u8* from = row + (u64)k * BYTES;
    if constexpr (!ALIGNED) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const u32 at = k + i < n ? k + i : n - 1;
            const float value = raw_value<TYPE>(row + (u64)at * BYTES, 0);
            v[i] = k + i < n ? value : 0.0f;
        }
    } else if constexpr (TYPE == F32) {
        const float4 a = ((const float4*)from)[0], b = ((const float4*)from)[1];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else {
        const uint4 w = *(const uint4*)from;
        const u32 words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const u16 half = (u16)(words[i / 2] >> i % 2 * 16);
            v[i] = TYPE == F16 ? half_to_float(half) : brain_to_float(half);
        }
    }
}

template <int TYPE, int OUT, int COUNT, bool ALIGNED>
__device__ __forceinline__ void accumulate(float (&sums)[OUT][COUNT], const u8* const (&rows)[OUT],
                                           const float* const (&inputs)[COUNT], u32 n) {
    constexpr int AHEAD = OUT * COUNT == 1 && ALIGNED ? 6 : 1;
#pragma unroll AHEAD
    for (u32 k = 8 * (threadIdx.x % 32); k < n; k += 256) {
        float w[OUT][8];
#pragma unroll
        for (int o = 0; o < OUT; o++) piece<TYPE, ALIGNED>(rows[o], k, n, w[o]);
#pragma unroll
        for (int r = 0; r < COUNT; r++) {
            float x[8];
            piece<F32, ALIGNED>((const u8*)inputs[r], k, n, x);
#pragma unroll
            for (int o = 0; o < OUT; o++)
#pragma unroll
                for (int i = 0; i < 8; i++) sums[o][r] = __fmaf_rn(x[i], w[o][i], sums[o][r]);
        }
    }
}

template <int TYPE, int OUT, int COUNT> __device__ __forceinline__ void multiply(const Step& step, const FloatProduct& p) {
    Span span;
    const u32 lane = threadIdx.x % 32, first = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * OUT;
    start_next();
    // Which matrix is known beforehand unless a router chooses it.
    if (!p.experts.data && first < p.n_out) {
        const u64 bytes = (u64)p.n_in * Raw<TYPE>::BYTES;
        const u8* from = p.weight + first * bytes;
#pragma unroll 1
        for (u64 at = 128 * lane; at < (p.n_out - first < OUT ? p.n_out - first : OUT) * bytes; at += 4096)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
    }
    wait_for_inputs();
    if (!find_span(step, p, blockIdx.y, COUNT, span)) return;
    if (first >= p.n_out) return;
    const u8* rows[OUT];
    float sums[OUT][COUNT];
#pragma unroll
    for (int o = 0; o < OUT; o++) {
        const u32 row = first + o < p.n_out ? first + o : p.n_out - 1;
        rows[o] = p.weight + span.matrix * p.matrix_bytes + (u64)row * p.n_in * Raw<TYPE>::BYTES;
#pragma unroll
        for (int r = 0; r < COUNT; r++) sums[o][r] = 0.0f;
    }
    const float* inputs[COUNT];
#pragma unroll
    for (int r = 0; r < COUNT; r++) {
        const u32 e = span.entry(r < span.count ? r : 0);
        inputs[r] = p.x.row(e / p.top_k) + (p.per_expert ? e % p.top_k * p.n_in : 0);
    }
    if (p.n_in % 8 == 0 && (u64)p.x.data % 16 == 0 && p.x.stride % 4 == 0)
        accumulate<TYPE, OUT, COUNT, true>(sums, rows, inputs, p.n_in);
    else
        accumulate<TYPE, OUT, COUNT, false>(sums, rows, inputs, p.n_in);
#pragma unroll
    for (int r = 0; r < COUNT; r++) {
#pragma unroll
        for (int o = 0; o < OUT; o++) {
            const float sum = warp_sum(sums[o][r]);
            if (lane == 0 && r < span.count && first + o < p.n_out) output_of(p, span.entry(r))[first + o] = sum;
        }
    }
}

extern "C" __global__ void __launch_bounds__(128) mat_mul_float(const Step step, const __grid_constant__ FloatProduct args) {
    multiply<WEIGHT, OUTS, ROWS>(step, args);
}
