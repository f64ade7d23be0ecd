// From the file's layout to that of quant_packed.cuh. One block of threads for each step of each tile.
//
// grid: (tiles of a matrix, steps of a row, matrices); rows behind the last of a matrix are zero.
#include "quant_packed.cuh"

// Scale words of a row of a step; `row` is null for rows that do not exist.
template <int TYPE> __device__ void pack_scales(const u8* row, int step, int groups, u8* out, int r) {
    typedef Packed<TYPE> P;
    typedef Raw<TYPE> R;
    u32 words[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    u32 common = 0;
    if constexpr (R::LEN == 32) {
        for (int j = 0; row && j < groups; j++) {
            const u8* b = row + (u64)(8 * step + j) * R::BYTES;
            if constexpr (TYPE == MXFP4) words[j / 4] |= (u32)b[0] << 8 * (j % 4);
            else if constexpr (P::WIDE) words[j] = byte2(b) | byte2(b + 2) << 16;
            else words[j / 2] |= byte2(b) << 16 * (j % 2);
        }
    } else if (row) {
        const u8* b = row + (u64)step * R::BYTES;
        if constexpr (TYPE == Q4_K || TYPE == Q5_K) {
            for (int t = 0; t < 4; t++) {
                const uint2 even = k4_scale_min(b + 4, 2 * t), odd = k4_scale_min(b + 4, 2 * t + 1);
                words[t] = even.x | odd.x << 6 | even.y << 12 | odd.y << 18 | (u32)b[t] << 24;
            }
        }
        if constexpr (TYPE == Q6_K || TYPE == Q3_K) {
            for (int j = 0; j < 16; j++) {
                const u32 s = TYPE == Q6_K ? b[192 + j] : (u8)q3k_scale(b, j);
                words[j / 4] |= s << 8 * (j % 4);
            }
            common = byte2(b + (TYPE == Q6_K ? 208 : 108));
        }
        if constexpr (TYPE == Q2_K) {
            for (int j = 0; j < 16; j++) words[j / 4] |= (u32)b[j] << 8 * (j % 4);
            common = byte2(b + 80) | byte2(b + 82) << 16;
        }
        if constexpr (TYPE == IQ4_XS) {
            for (int j = 0; j < 8; j++) words[j / 4] |= (u32)(u8)iq4xs_scale(b, j) << 8 * (j % 4);
            common = byte2(b);
        }
    }
    constexpr int N = P::WIDE ? 8 : TYPE == IQ4_XS || TYPE == MXFP4 ? 2 : 4;
    for (int i = 0; i < N; i++) ((u32*)out)[N * r + i] = words[i];
    if constexpr (P::SIX) *(u16*)(out + 256 + 2 * r) = (u16)common;
    if constexpr (TYPE == Q2_K) *(u32*)(out + 256 + 4 * r) = common;
    if constexpr (TYPE == IQ4_XS) *(u16*)(out + 128 + 2 * r) = (u16)common;
}

// Code `i` of set `s` of group `j` of a step.
template <int TYPE> __device__ __forceinline__ u32 code_of(const u8* const rows[2], int step, int groups, int j, int s, int t, int i) {
    typedef Raw<TYPE> R;
    const u8* row = rows[s % 2];
    if (!row || j >= groups) return 0;
    const int k = 16 * (s / 2) + 4 * t + i;
    if constexpr (R::LEN == 32) return raw_code<TYPE>(row + (u64)(8 * step + j) * R::BYTES, k);
    else return raw_code<TYPE>(row + (u64)step * R::BYTES, 32 * j + k);
}

// Word `c` of load `load` of a lane.
template <int TYPE> __device__ u32 word_of(const u8* const rows[2], int step, int groups, int load, int c, int t) {
    typedef Packed<TYPE> P;
    u32 word = 0;
    if (load < P::BITS) {
        const int at = TYPE == Q3_K ? 2 : 4;
        for (int field = 0; field < 8; field++)
            for (int i = 0; i < 4; i++)
                word |= (code_of<TYPE>(rows, step, groups, 2 * c + field / 4, field % 4, t, i) >> at & 1) << 8 * i + field;
        return word;
    }
    load -= P::BITS;
    if (load < P::PAIRS) {
        const int at = TYPE == Q6_K ? 4 : 0;
        for (int s = 0; s < 4; s++)
            for (int i = 0; i < 4; i++)
                word |= (code_of<TYPE>(rows, step, groups, 4 * load + c, s, t, i) >> at & 3) << 8 * i + 2 * s;
        return word;
    }
    load -= P::PAIRS;
    if constexpr (P::NIBBLES != 0) {
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < 4; i++) {
                const u32 code = code_of<TYPE>(rows, step, groups, 2 * load + c / 2, 2 * h + c % 2, t, i) & 15;
                word |= code << (P::TABLE ? 16 * h + 4 * i : 8 * i + 4 * h);
            }
    }
    if constexpr (P::BYTES != 0)
        for (int i = 0; i < 4; i++) word |= code_of<TYPE>(rows, step, groups, load, c, t, i) << 8 * i;
    return word;
}

template <int TYPE> __device__ __forceinline__ void pack(const u8* raw, u8* packed, u32 n_in, u32 n_out) {
    typedef Packed<TYPE> P;
    const u64 row_bytes = (u64)n_in / Raw<TYPE>::LEN * Raw<TYPE>::BYTES;
    const int step = blockIdx.y, total = n_in / GROUP;
    const int groups = total - 8 * step < 8 ? total - 8 * step : 8;
    const u32 first = blockIdx.x * TILE;
    const u8* matrix = raw + (u64)blockIdx.z * n_out * row_bytes;
    const u64 tile = (u64)blockIdx.z * gridDim.x + blockIdx.x;
    u8* out = packed + tile * tile_bytes<TYPE>(total) + (u64)step * P::STEP_BYTES;
    if (threadIdx.x < TILE) {
        const u32 r = first + threadIdx.x;
        pack_scales<TYPE>(r < n_out ? matrix + r * row_bytes : nullptr, step, groups, out, threadIdx.x);
    }
    const int words = 128 * step_loads<TYPE>(groups);
    for (int w = threadIdx.x; w < words; w += blockDim.x) {
        const int load = w / 128, lane = w / 4 % 32, g = lane / 4;
        const u32 low = first + g, high = low + 8;
        const u8* const rows[2] = {low < n_out ? matrix + low * row_bytes : nullptr, high < n_out ? matrix + high * row_bytes : nullptr};
        ((u32*)(out + P::SCALES))[w] = word_of<TYPE>(rows, step, groups, load, w % 4, lane % 4);
    }
}

// `Pack` in launch/mat_mul_pack.rs.
struct Pack {
    const u8* raw;
    u8* packed;
    u32 n_in, n_out;
};

extern "C" __global__ void __launch_bounds__(256) pack_weights(const Step, const Pack args) {
    pack<WEIGHT>(args.raw, args.packed, args.n_in, args.n_out);
}
