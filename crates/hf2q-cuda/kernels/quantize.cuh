// Activations as signed bytes with one scale per 32, rounded as on the CPU: scale = max|x| / 127, codes to nearest even, a
// group with a value that is not finite has a NaN scale.
//
// Codes of a group lie in the order in which fragments are read: word 2t holds k = 4t .. 4t + 4, word 2t + 1 k = 16 + 4t ..
// A row is padded with zeros to 256 values. For each group there are four floats: the scale, the sum of codes, and the
// sums of its halves.
#pragma once
#include "common.cuh"

// Quantized rows: `Coded` in launch/mat_mul_quantize.rs.
struct Coded {
    i8* codes;
    float4* groups;
    // Values of a row, and of one that is padded.
    u32 n_in, n_pad;
};

// Quantizes values `first` to `first + 4` of row `row`. Eight neighbouring threads have a group and do so together: `active`.
__device__ __forceinline__ void quantize4(const Coded& to, u64 row, u32 first, const float (&v)[4], u32 active) {
    u32 largest = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 bits = __float_as_uint(v[i]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
#pragma unroll
    for (int mask = 1; mask < 8; mask *= 2) {
        const u32 other = __shfl_xor_sync(active, largest, mask);
        largest = other > largest ? other : largest;
    }
    // Below 2^-100 a group counts as zero: the inverse of its scale would leave single precision.
    const bool infinite = largest >= 0x7f800000u, tiny = largest < (127u - 100u) << 23;
    const float most = __uint_as_float(largest);
    const float scale = infinite ? __uint_as_float(0x7fc00000u) : tiny ? 0.0f : __fdiv_rn(most, 127.0f);
    const float inverse = infinite || tiny ? 0.0f : __fdiv_rn(127.0f, most);
    u32 word = 0;
    int sum = 0;
    if (inverse != 0.0f) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            // Added to 1.5 · 2^23, a magnitude of at most 127 ends up in the low bits.
            const u32 code = __float_as_uint(__fadd_rn(__fmul_rn(v[i], inverse), 12582912.0f)) & 255u;
            word |= code << 8 * i;
            sum += (int)(i8)code;
        }
    }
    sum += __shfl_xor_sync(active, sum, 1);
    sum += __shfl_xor_sync(active, sum, 2);
    const int other = __shfl_xor_sync(active, sum, 4);
    const u32 u = first / 4 % 8;
    *(u32*)(to.codes + row * to.n_pad + first / 32 * 32 + 8 * (u % 4) + 4 * (u / 4)) = word;
    if (u == 0) to.groups[row * (to.n_pad / 32) + first / 32] = make_float4(scale, (float)(sum + other), (float)sum, (float)other);
}
