// Block formats as they lie in the file: sizes, codes, scales and single values. Layouts are described in hf2q-quant.
#pragma once
#include "common.cuh"

// Types of GGUF tensors, by the numbers of the file format.
enum : int {
    F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q2_K = 10, Q3_K = 11, Q4_K = 12,
    Q5_K = 13, Q6_K = 14, IQ4_NL = 20, IQ4_XS = 23, BF16 = 30, MXFP4 = 39
};

// Half the power of two that an E8M0 exponent stands for: 2^(e - 128), subnormal for e < 2.
__device__ __forceinline__ float e8m0_half(u32 e) {
    return __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

// Values and bytes of a block.
template <int TYPE> struct Raw {
    static constexpr bool SUPER = TYPE == Q2_K || TYPE == Q3_K || TYPE == Q4_K || TYPE == Q5_K || TYPE == Q6_K || TYPE == IQ4_XS;
    static constexpr int LEN = TYPE == F32 || TYPE == F16 || TYPE == BF16 ? 1 : SUPER ? 256 : 32;
    static constexpr int BYTES =
        TYPE == F32 ? 4 : TYPE == F16 || TYPE == BF16 ? 2 : TYPE == Q4_0 || TYPE == IQ4_NL ? 18 : TYPE == Q4_1 ? 20 :
        TYPE == Q5_0 ? 22 : TYPE == Q5_1 ? 24 : TYPE == Q8_0 ? 34 : TYPE == Q2_K ? 84 : TYPE == Q3_K ? 110 :
        TYPE == Q4_K ? 144 : TYPE == Q5_K ? 176 : TYPE == Q6_K ? 210 : TYPE == IQ4_XS ? 136 : 17;
};

// Blocks have even addresses at best.
__device__ __forceinline__ u32 byte2(const u8* p) { return p[0] | p[1] << 8; }
__device__ __forceinline__ float half_at(const u8* p) { return half_to_float(byte2(p)); }

// Code of value `i` of a block: unsigned with its offset, an index of a table, or (q8_0) a signed byte.
template <int TYPE> __device__ __forceinline__ u32 raw_code(const u8* b, int i) {
    if constexpr (TYPE == Q4_0 || TYPE == IQ4_NL) return b[2 + i % 16] >> i / 16 * 4 & 15;
    if constexpr (TYPE == MXFP4) return b[1 + i % 16] >> i / 16 * 4 & 15;
    if constexpr (TYPE == Q4_1) return b[4 + i % 16] >> i / 16 * 4 & 15;
    if constexpr (TYPE == Q5_0) return (b[6 + i % 16] >> i / 16 * 4 & 15) | (b[2 + i / 8] >> i % 8 & 1) << 4;
    if constexpr (TYPE == Q5_1) return (b[8 + i % 16] >> i / 16 * 4 & 15) | (b[4 + i / 8] >> i % 8 & 1) << 4;
    if constexpr (TYPE == Q8_0) return b[2 + i];
    if constexpr (TYPE == Q2_K) return b[16 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
    if constexpr (TYPE == Q3_K)
        return (b[32 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3) | (b[i % 32] >> i / 32 & 1) << 2;
    if constexpr (TYPE == Q4_K) return b[16 + i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15;
    if constexpr (TYPE == Q5_K)
        return (b[48 + i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15) | (b[16 + i % 32] >> i / 32 & 1) << 4;
    if constexpr (TYPE == Q6_K)
        return (b[i / 128 * 64 + i % 64] >> i % 128 / 64 * 4 & 15) | (b[128 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3) << 4;
    if constexpr (TYPE == IQ4_XS) return b[8 + i / 32 * 16 + i % 16] >> i % 32 / 16 * 4 & 15;
    return 0;
}

// Scale and minimum (6 bits each) of group `j` of a q4_k or q5_k block whose packed scales start at `s`.
__device__ __forceinline__ uint2 k4_scale_min(const u8* s, int j) {
    if (j < 4) return make_uint2(s[j] & 63, s[j + 4] & 63);
    return make_uint2((s[j + 4] & 15) | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4);
}

// Signed scale of group `j` of 16 of a q3_k block.
__device__ __forceinline__ int q3k_scale(const u8* block, int j) {
    const u8* s = block + 96;
    return (int)((s[j % 8] >> j / 8 * 4 & 15) | (s[8 + j % 4] >> j / 4 * 2 & 3) << 4) - 32;
}

// Signed scale of group `j` of 32 of an iq4_xs block.
__device__ __forceinline__ int iq4xs_scale(const u8* block, int j) {
    return (int)((block[4 + j / 2] >> j % 2 * 4 & 15) | (byte2(block + 2) >> j * 2 & 3) << 4) - 32;
}

// Levels that nibbles of iq4_nl, iq4_xs and mxfp4 (twice the float) stand for.
__device__ __forceinline__ int nl_level(u32 nibble) {
    const i8 table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return table[nibble];
}
__device__ __forceinline__ int fp4_level(u32 nibble) {
    const i8 table[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    return table[nibble];
}

// Value `i` of a block, dequantized: the same operations in the same order as on the CPU.
template <int TYPE> __device__ __forceinline__ float raw_value(const u8* b, int i) {
    if constexpr (TYPE == F32) return __uint_as_float(byte2(b) | byte2(b + 2) << 16);
    if constexpr (TYPE == F16) return half_at(b);
    if constexpr (TYPE == BF16) return brain_to_float(byte2(b));
    const int q = (int)raw_code<TYPE>(b, i);
    if constexpr (TYPE == Q4_0) return __fmul_rn((float)(q - 8), half_at(b));
    if constexpr (TYPE == Q5_0) return __fmul_rn((float)(q - 16), half_at(b));
    if constexpr (TYPE == Q8_0) return __fmul_rn((float)(i8)q, half_at(b));
    if constexpr (TYPE == Q4_1 || TYPE == Q5_1) return __fadd_rn(__fmul_rn((float)q, half_at(b)), half_at(b + 2));
    if constexpr (TYPE == IQ4_NL) return __fmul_rn(half_at(b), (float)nl_level(q));
    if constexpr (TYPE == MXFP4) return __fmul_rn(e8m0_half(b[0]), (float)fp4_level(q));
    if constexpr (TYPE == IQ4_XS)
        return __fmul_rn(__fmul_rn(half_at(b), (float)iq4xs_scale(b, i / 32)), (float)nl_level(q));
    if constexpr (TYPE == Q4_K || TYPE == Q5_K) {
        const uint2 s = k4_scale_min(b + 4, i / 32);
        const float scale = __fmul_rn(half_at(b), (float)s.x), least = __fmul_rn(half_at(b + 2), (float)s.y);
        return __fsub_rn(__fmul_rn(scale, (float)q), least);
    }
    if constexpr (TYPE == Q2_K) {
        const u32 s = b[i / 16];
        const float scale = __fmul_rn(half_at(b + 80), (float)(s & 15)), least = __fmul_rn(half_at(b + 82), (float)(s >> 4));
        return __fsub_rn(__fmul_rn(scale, (float)q), least);
    }
    if constexpr (TYPE == Q3_K) return __fmul_rn(__fmul_rn(half_at(b + 108), (float)q3k_scale(b, i / 16)), (float)(q - 4));
    if constexpr (TYPE == Q6_K)
        return __fmul_rn(__fmul_rn(half_at(b + 208), (float)(i8)b[192 + i / 16]), (float)(q - 32));
    return 0.0f;
}
