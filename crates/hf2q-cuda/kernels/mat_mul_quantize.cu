// Activations as signed bytes with one scale per 32, rounded as on the CPU: scale = max|x| / 127, codes to nearest even, a
// group with a value that is not finite has a NaN scale.
//
// Codes of a group lie in the order in which fragments are read: word 2t holds k = 4t .. 4t + 4, word 2t + 1 k = 16 + 4t ..
// A row is padded with zeros to 256 values. For each group there are four floats: the scale, the sum of codes, and the
// sums of its halves.
//
// grid: (rows of the bucket · parts, blocks of 1024 values of a part); block: 256, four values a thread.
#include "common.cuh"

// `Quantize` in launch/mat_mul_quantize.rs.
struct Quantize {
    Rows x;
    i8* codes;
    float4* groups;
    u32 kind, parts, n_in, n_pad;
};

extern "C" __global__ void __launch_bounds__(256) quantize_rows(const Step step, const Quantize args) {
    start_next();
    wait_for_inputs();
    const u32 n_in = args.n_in, n_pad = args.n_pad;
    const u32 part = blockIdx.x, row = part / args.parts;
    const u32 first = (blockIdx.y * 256 + threadIdx.x) * 4;
    // Eight neighbouring threads have a group, so they leave together.
    if (row >= step.count(args.kind) || first >= n_pad) return;
    const u32 active = __activemask();
    const float* from = args.x.row(row) + (u64)(part % args.parts) * n_in + first;
    float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    u32 largest = 0;
    if (first < n_in) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = from[i];
            const u32 bits = __float_as_uint(v[i]) & 0x7fffffffu;
            largest = bits > largest ? bits : largest;
        }
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
    *(u32*)(args.codes + (u64)part * n_pad + first / 32 * 32 + 8 * (u % 4) + 4 * (u / 4)) = word;
    if (u == 0) args.groups[(u64)part * (n_pad / 32) + first / 32] = make_float4(scale, (float)(sum + other), (float)sum, (float)other);
}
