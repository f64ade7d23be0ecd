// The codes of keys and values: those of hf2q-quant, bit for bit, by the same sums in the same order.
#pragma once
#include "kv.cuh"

#define WIDEST 2048

struct KvStore {
    Cache cache;
    Rows k, v;
    u32 group;
    u32 padding;
};

// Sum of sixteen lanes of a half warp: lane i plus lane i + 8, then 4, 2 and 1 apart; right in the first lane.
__device__ __forceinline__ float fold(float x) {
    for (int d = 8; d > 0; d /= 2) x += __shfl_down_sync(FULL, x, d, 16);
    return x;
}

// The vector being stored: its components, codes and scales.
struct Draft {
    float x[WIDEST];
    u8 codes[WIDEST];
    u16 scales[WIDEST / 32];
};

// Codes of one block of `n` rotated values by sixteen threads, whose number among them is `lane`.
__device__ __forceinline__ float sum_of_squares(const float *x, u32 n, u32 lane) {
    float sum = 0.0f;
    for (u32 i = lane; i < n; i += 16) sum += x[i] * x[i];
    return fold(sum);
}

__device__ __forceinline__ void turbo(Draft &d, const Vectors &v, u32 count) {
    __shared__ float inverses[16];
    u32 n = v.block, levels = 1u << (v.bits - 1), lane = threadIdx.x % 16;
    const float *values = v.levels, *thresholds = v.levels + 2 * levels;
    rotate(d.x, count, n);
    u32 block = threadIdx.x / 16;
    bool mine = block * n < count;
    const float *x = d.x + (mine ? block * n : 0);
    float square = sum_of_squares(x, n, lane);
    if (mine && lane == 0) {
        bool usual = square < INFINITE && square > 0.0f;
        inverses[block] = v.scales == 0 ? 1.0f : usual ? __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(square, (float)n))) : 0.0f;
        d.scales[block] = square == 0.0f ? 0 : NO_SCALE;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        float inverse = inverses[i / n], size = fabsf(d.x[i]) * inverse;
        u32 level = 0;
        for (u32 step = levels / 2; step > 0; step /= 2) level += size >= thresholds[level + step - 1] ? step : 0;
        u32 sign = __float_as_uint(d.x[i]) >> 31 ? levels : 0;
        d.codes[i] = inverse == 0.0f ? 0 : level | sign;
    }
    __syncthreads();
    float products = 0.0f, squares = 0.0f;
    const u8 *codes = d.codes + (mine ? block * n : 0);
    for (u32 i = lane; i < n; i += 16) {
        float level = values[codes[i]];
        products += x[i] * level;
        squares += level * level;
    }
    products = fold(products);
    squares = fold(squares);
    if (mine && lane == 0 && inverses[block] != 0.0f)
        d.scales[block] = float_to_half(fminf(__fdiv_rn(products, squares), 65504.0f));
    __syncthreads();
}

__device__ __forceinline__ void int8(Draft &d, u32 groups) {
    u32 lane = threadIdx.x % 32;
    for (u32 g = threadIdx.x / 32; g < groups; g += blockDim.x / 32) {
        float x = d.x[g * 32 + lane];
        int most = __float_as_int(fabsf(x));
        for (int i = 16; i > 0; i /= 2) most = max(most, __shfl_xor_sync(FULL, most, i));
        float scale = __fdiv_rn(__int_as_float(most), 127.0f), inverse = __fdiv_rn(1.0f, scale);
        float y = x * (fabsf(inverse) < INFINITE ? inverse : 0.0f);
        d.codes[g * 32 + lane] = (u8)__float2int_rz(y + copysignf(0.49999997f, y));
        if (lane == 0) d.scales[g] = float_to_half(scale);
    }
    __syncthreads();
}

// Word `w` of group `g`.
__device__ __forceinline__ u32 word_of(const Draft &d, const Vectors &v, u32 g, u32 w) {
    const float *x = d.x + g * 32;
    const u8 *codes = d.codes + g * 32;
    if (v.format == KV_F32) return __float_as_uint(x[w]);
    if (v.format == KV_F16) return float_to_half(x[2 * w]) | (u32)float_to_half(x[2 * w + 1]) << 16;
    if (v.format == KV_BF16) return float_to_brain(x[2 * w]) | (u32)float_to_brain(x[2 * w + 1]) << 16;
    u32 word = 0, last = min(31u, (32 * w + 31) / v.bits);
#pragma unroll 1
    for (u32 i = 32 * w / v.bits; i <= last; i++) {
        int shift = (int)(i * v.bits) - (int)(32 * w);
        word |= shift >= 0 ? (u32)codes[i] << shift : (u32)codes[i] >> -shift;
    }
    return word;
}

__device__ __forceinline__ u32 slot_of(const Step &step, const KvStore &args, u32 r) {
    return step.at(step.group(args.group, GROUP_SLOTS_AT) + r);
}

// Stores the draft. All threads of a block take part.
__device__ __forceinline__ void store(const KvStore &args, Draft &draft, u32 slot, u32 head, bool is_key) {
    const Cache &cache = args.cache;
    u32 groups = cache.groups();
    const Vectors &v = is_key ? cache.keys : cache.values;
    if (v.format >= KV_TQ2) turbo(draft, v, cache.head_dim);
    if (v.format == KV_Q8_0) int8(draft, groups);
    u32 page = slot / PAGE, p = slot % PAGE;
    u32 *block = is_key ? cache.block_of_keys(page, head) : cache.block_of_values(page, head);
#pragma unroll 1
    for (u32 i = threadIdx.x; i < groups * v.bits; i += blockDim.x) {
        u32 g = i / v.bits, w = i % v.bits;
        block[is_key ? key_word(v.bits, g, w, p) : value_word(v.bits, groups, g, w, p)] = word_of(draft, v, g, w);
    }
    u16 *scales = scales_of(block, v, groups);
#pragma unroll 1
    for (u32 s = threadIdx.x; s < v.scales; s += blockDim.x) scales[s * PAGE + p] = draft.scales[s];
}
