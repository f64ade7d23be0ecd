// Keys and values in pages of 64 positions. For every page and KV head there is a block of keys, if keys are stored,
// and behind it a block of values: packed components, then scales [scales][64] in half precision for formats that have them.
//
// Components are packed in groups of 32: one group of a format of b bits is b words, component i from bit i·b of them on.
// `VECTOR` words of a group lie side by side, so that a thread loads them at once:
//   keys   [group][b / VECTOR][position][VECTOR]: threads of a warp take neighbouring positions;
//   values [position][b / VECTOR][group][VECTOR]: threads of a warp take neighbouring groups.
#pragma once
#include "common.cuh"

#define PAGE 64
#define NO_SLOT FULL
#define NO_SCALE 0x7e00

// Formats: `format_code` of kv.rs.
enum { KV_F32, KV_F16, KV_BF16, KV_Q8_0, KV_TQ2, KV_TQ3, KV_TQ4, KV_TQ5, KV_TQ6, KV_TQ8 };

// Keys or values of a head: `Vectors` of kv.rs.
struct Vectors {
    u32 format;
    u32 bits;
    // Stored scales of a vector.
    u32 scales;
    // Components that share a scale, and are stored rotated together in formats from KV_TQ2 on.
    u32 block;
    // Words of a page's block; 0: not stored.
    u32 words;
    u32 padding;
    // The values of all codes, then the thresholds between the positive ones, for formats from KV_TQ2 on.
    const float *levels;
};

// The cache of a layer: `CacheArgs` of kv.rs.
struct Cache {
    u32 *data;
    u32 kv_heads;
    u32 head_dim;
    Vectors keys, values;

    __device__ u32 groups() const { return (head_dim + 31) / 32; }
    __device__ u32 *block_of_keys(u32 page, u32 head) const {
        return data + (u64)(page * kv_heads + head) * (keys.words + values.words);
    }
    __device__ u32 *block_of_values(u32 page, u32 head) const { return block_of_keys(page, head) + keys.words; }
};

__device__ __forceinline__ u32 vector_of(u32 bits) { return bits % 4 == 0 ? 4 : bits % 2 == 0 ? 2 : 1; }

// Word `w` of group `g` at position `p` of a page.
__device__ __forceinline__ u32 key_word(u32 bits, u32 g, u32 w, u32 p) {
    u32 v = vector_of(bits);
    return (g * bits + w / v * v) * PAGE + p * v + w % v;
}
__device__ __forceinline__ u32 value_word(u32 bits, u32 groups, u32 g, u32 w, u32 p) {
    u32 v = vector_of(bits);
    return p * groups * bits + w / v * v * groups + g * v + w % v;
}

__device__ __forceinline__ u16 *scales_of(u32 *block, const Vectors &v, u32 groups) {
    return (u16 *)(block + PAGE * groups * v.bits);
}

template <int FORMAT> struct Format {
    static constexpr int BITS = FORMAT == KV_F32 ? 32 : FORMAT == KV_F16 || FORMAT == KV_BF16 ? 16 : FORMAT == KV_Q8_0 ? 8 :
        FORMAT == KV_TQ2 ? 2 : FORMAT == KV_TQ3 ? 3 : FORMAT == KV_TQ4 ? 4 : FORMAT == KV_TQ5 ? 5 : FORMAT == KV_TQ6 ? 6 : 8;
    static constexpr int VECTOR = BITS % 4 == 0 ? 4 : BITS % 2 == 0 ? 2 : 1;
    static constexpr bool TURBO = FORMAT >= KV_TQ2;
    // Words that are loaded at once: a whole group where codes cross words, half of it or a quarter of floats.
    static constexpr int PIECE = BITS <= 8 ? BITS : 8;

    // Loads words from `from` on; vectors of words are `apart` words from each other.
    __device__ static void load(const u32 *from, u32 apart, u32 (&w)[PIECE]) {
#pragma unroll
        for (int i = 0; i < PIECE / VECTOR; i++) {
            if constexpr (VECTOR == 4) {
                uint4 x = *(const uint4 *)(from + i * apart);
                w[4 * i] = x.x, w[4 * i + 1] = x.y, w[4 * i + 2] = x.z, w[4 * i + 3] = x.w;
            } else if constexpr (VECTOR == 2) {
                uint2 x = *(const uint2 *)(from + i * apart);
                w[2 * i] = x.x, w[2 * i + 1] = x.y;
            } else {
                w[i] = from[i * apart];
            }
        }
    }

    // Component `i`, a constant after unrolling, without its scale.
    __device__ static float value(const u32 (&w)[PIECE], int i, const float *levels) {
        if constexpr (FORMAT == KV_F32) return __uint_as_float(w[i]);
        if constexpr (FORMAT == KV_F16) return half_to_float((u16)(w[i / 2] >> i % 2 * 16));
        if constexpr (FORMAT == KV_BF16) return brain_to_float((u16)(w[i / 2] >> i % 2 * 16));
        if constexpr (FORMAT == KV_Q8_0) return (float)(i8)(w[i / 4] >> i % 4 * 8);
        if constexpr (TURBO) {
            const int first = i * BITS / 32, shift = i * BITS % 32;
            u32 code = shift + BITS <= 32 ? w[first] >> shift : __funnelshift_r(w[first], w[first + (shift + BITS > 32)], shift);
            return levels[code & ((1u << BITS) - 1)];
        }
        return 0.0f;
    }
};

// Runs `CALL` with `F` as the format.
#define ONE_FORMAT(NUMBER, CALL) case NUMBER: { typedef Format<NUMBER> F; CALL; break; }
#define WITH_FORMAT(NUMBER, CALL)                                                                       \
    switch (NUMBER) {                                                                                   \
        ONE_FORMAT(KV_F32, CALL) ONE_FORMAT(KV_F16, CALL) ONE_FORMAT(KV_BF16, CALL)                     \
        ONE_FORMAT(KV_Q8_0, CALL) ONE_FORMAT(KV_TQ2, CALL) ONE_FORMAT(KV_TQ3, CALL)                     \
        ONE_FORMAT(KV_TQ4, CALL) ONE_FORMAT(KV_TQ5, CALL) ONE_FORMAT(KV_TQ6, CALL) ONE_FORMAT(KV_TQ8, CALL) \
    }

// -1 where bit `i` of the first 256 bits of the fraction of pi is set.
__device__ __forceinline__ float sign_of(u32 i) {
    const u32 words[8] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0x082efa98, 0xec4e6c89};
    u32 word = 0;
#pragma unroll
    for (int j = 0; j < 8; j++) word = i / 32 == j ? words[j] : word;
    return word >> i % 32 & 1 ? -1.0f : 1.0f;
}

// 1 / sqrt(n) for blocks of 64, 128 and 256.
__device__ __forceinline__ float rotation_factor(u32 n) { return n == 64 ? 0.125f : n == 128 ? 0.70710678f / 8.0f : 0.0625f; }

// Butterflies of `count` values in shared memory, in blocks of `n`; all threads of the block take part.
__device__ __forceinline__ void hadamard(float *x, u32 count, u32 n) {
    for (u32 d = 1; d < n; d *= 2) {
        __syncthreads();
        for (u32 i = threadIdx.x; i < count / 2; i += blockDim.x) {
            u32 at = i / d * 2 * d + i % d;
            float a = x[at], b = x[at + d];
            x[at] = a + b;
            x[at + d] = a - b;
        }
    }
    __syncthreads();
}

// Rotates `count` values in blocks of `n`.
__device__ __forceinline__ void rotate(float *x, u32 count, u32 n) {
    __syncthreads();
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) x[i] *= sign_of(i % n);
    hadamard(x, count, n);
    float factor = rotation_factor(n);
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) x[i] *= factor;
    __syncthreads();
}

__device__ __forceinline__ void rotate_back(float *x, u32 count, u32 n) {
    hadamard(x, count, n);
    float factor = rotation_factor(n);
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) x[i] *= factor * sign_of(i % n);
    __syncthreads();
}
