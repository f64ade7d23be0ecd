// What all kernels share: the step's numbers, rows of activations, functions with a fixed error, reductions in a fixed
// order. Multiply-adds are fused only by __fmaf_rn: kernels are compiled with --fmad=false.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;

#define FULL 0xffffffffu
#define INFINITE __int_as_float(0x7f800000)

// Rows of an activation: `Rows` in launch/mod.rs.
struct Rows {
    float *data;
    u32 stride;
    u32 width;

    __device__ float *row(u32 r) const { return data + (u64)r * stride; }
};

// Words of the step's header: `Header` in step.rs. Entries named `_at` are positions of lists, in words.
enum {
    STEP_ROWS,
    STEP_LOGIT_ROWS,
    STEP_PATH_LEN,
    STEP_TOKENS_AT,
    STEP_POSITIONS_AT,
    STEP_SEQUENCES_AT,
    STEP_TREE_BASE_AT,
    STEP_LOGIT_ROWS_AT,
    // Chunks of rows side by side, three words each: first row of the step, row of the operand, rows.
    STEP_CHUNKS,
    STEP_CHUNKS_AT,
    STEP_WANTED_CHUNKS,
    STEP_WANTED_CHUNKS_AT,
    // Most rows of a chunk.
    STEP_CHUNK_ROWS,
    STEP_WANTED_CHUNK_ROWS,
    // A list of positions of inputs.
    STEP_INPUTS_AT,
    // From here on GROUP_WORDS for each group of caches.
    STEP_GROUPS = 16,
};
enum {
    GROUP_SLOTS_AT,
    GROUP_TABLES_AT,
    GROUP_PAGES,
    GROUP_PATHS_AT,
    // Most spans of keys that a chunk sees.
    GROUP_SPANS,
    GROUP_WANTED_SPANS,
    GROUP_WORDS = 8,
};
enum { ROWS_OF_STEP, ROWS_OF_LOGITS };

// The numbers of a step.
struct Step {
    const u32 *words;

    __device__ u32 at(u32 i) const { return __ldg(words + i); }
    // Rows of an activation of that kind.
    __device__ u32 count(u32 kind) const { return at(kind == ROWS_OF_STEP ? STEP_ROWS : STEP_LOGIT_ROWS); }
    // The row of the step that row `r` of an activation is.
    __device__ u32 row(u32 kind, u32 r) const { return kind == ROWS_OF_STEP ? r : at(at(STEP_LOGIT_ROWS_AT) + r); }
    __device__ u32 chunk_rows(u32 kind) const { return at(kind == ROWS_OF_STEP ? STEP_CHUNK_ROWS : STEP_WANTED_CHUNK_ROWS); }
    __device__ u32 token(u32 row) const { return at(at(STEP_TOKENS_AT) + row); }
    __device__ u32 position(u32 row) const { return at(at(STEP_POSITIONS_AT) + row); }
    __device__ u32 sequence(u32 row) const { return at(at(STEP_SEQUENCES_AT) + row); }
    __device__ u32 tree_base(u32 row) const { return at(at(STEP_TREE_BASE_AT) + row); }
    // Value `i` of an input.
    __device__ float input(u32 index, u64 i) const {
        return __uint_as_float(__ldg(words + at(at(STEP_INPUTS_AT) + index) + i));
    }
    __device__ u32 group(u32 g, u32 word) const { return at(STEP_GROUPS + g * GROUP_WORDS + word); }
};

__device__ __forceinline__ float half_to_float(u16 h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

__device__ __forceinline__ u16 float_to_half(float f) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

__device__ __forceinline__ float brain_to_float(u16 h) { return __uint_as_float((u32)h << 16); }

// Rounds to the nearest, ties to even; NaN stays NaN.
__device__ __forceinline__ u16 float_to_brain(float f) {
    u32 bits = __float_as_uint(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)((bits >> 16) | 0x40);
    return (u16)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

// e^x within 2 units in the last place; 0 below -87.3; NaN for NaN. Coefficients: Cephes (Moshier 1989).
__device__ __forceinline__ float exp_of(float x) {
    const float lowest = -87.3f, highest = 88.0f;
    float clamped = fmaxf(lowest, fminf(highest, x));
    float n = rintf(__fmul_rn(clamped, 1.44269504f));
    float r = __fmaf_rn(n, -0.693359375f, clamped);
    r = __fmaf_rn(n, 2.12194440e-4f, r);
    float p = 1.9875692e-4f;
    p = __fmaf_rn(p, r, 1.3981999e-3f);
    p = __fmaf_rn(p, r, 8.333452e-3f);
    p = __fmaf_rn(p, r, 4.1665796e-2f);
    p = __fmaf_rn(p, r, 1.6666665e-1f);
    p = __fmaf_rn(p, r, 0.5f);
    float y = __fmaf_rn(p, r * r, r) + 1.0f;
    float e = y * __int_as_float(((int)n + 127) << 23);
    return x != x ? x : (x < lowest ? 0.0f : e);
}

// Hyperbolic tangent within 3 units in the last place.
__device__ __forceinline__ float tanh_of(float x) {
    float size = fabsf(x), z = x * x;
    float p = -5.7049887e-3f;
    p = __fmaf_rn(p, z, 2.063909e-2f);
    p = __fmaf_rn(p, z, -5.3739716e-2f);
    p = __fmaf_rn(p, z, 1.3331442e-1f);
    p = __fmaf_rn(p, z, -3.333328e-1f);
    float small = __fmaf_rn(p * z, x, x);
    float large = 1.0f - __fdiv_rn(2.0f, exp_of(size + size) + 1.0f);
    return size < 0.625f ? small : copysignf(large, x);
}

__device__ __forceinline__ float soft_cap_of(float x, float cap) { return cap * tanh_of(__fdiv_rn(x, cap)); }

// x/2 (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3), which is x / (1 + e^(-2u)).
__device__ __forceinline__ float gelu_of(float x) {
    float inner = __fmaf_rn(x * x, -7.1354816e-2f, -1.595769f);
    return __fdiv_rn(x, 1.0f + exp_of(x * inner));
}

__device__ __forceinline__ float silu_of(float x) { return __fdiv_rn(x, 1.0f + exp_of(-x)); }

// Sum over a warp, the same tree for every lane.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(FULL, x, d);
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(FULL, x, d));
    return x;
}

// Lets the next kernel begin, if it was launched ahead: it waits for this one where it says so.
__device__ __forceinline__ void start_next() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits for the kernel before, and so for all before it. What was launched ahead must not leave without having waited.
__device__ __forceinline__ void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Bytes that later kernels read: weights. `Region` in launch/mod.rs.
struct Region {
    const u8 *at;
    u64 bytes;

    // Brings the share of block `block` of `blocks` to the second cache.
    __device__ void prefetch(u32 block, u32 blocks) const {
#pragma unroll 1
        for (u64 i = ((u64)block * blockDim.x + threadIdx.x) * 128; i < bytes; i += (u64)blocks * blockDim.x * 128)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(at + i));
    }
};

// The beginning of a kernel that has nothing to do before its inputs are there.
__device__ __forceinline__ void begin() {
    start_next();
    wait_for_inputs();
}
