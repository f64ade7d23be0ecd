// Sums of two to four rows.
//
// A tensor-core product has eight columns. With so few rows, column `j` takes group `j` of a step instead of another row: the
// product of group `j` has that column's activations and zeros elsewhere, and after a step each lane has the sums of two
// groups of two weight rows, which is all it scales.
#pragma once
#include "quant_walk.cuh"

template <int WEIGHTS, int COUNT> struct Few {
    static constexpr int TYPE = WEIGHTS, WIDTH = COUNT;
    typedef Packed<TYPE> P;
    const i8* codes[COUNT];
    const float4* groups[COUNT];
    float sums[COUNT][2];
    int lane;

    __device__ __forceinline__ void begin(const Product& p, const Span& span, int lane, int steps) {
        this->lane = lane;
#pragma unroll
        for (int r = 0; r < COUNT; r++) {
            const u64 input = input_of(p, span.entry(r < span.count ? r : 0));
            codes[r] = p.codes + input * steps * STEP + 8 * lane;
            groups[r] = p.groups + input * steps * 8 + 2 * (lane % 4);
        }
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int r = 0; r < COUNT; r++) sums[r][0] = sums[r][1] = 0.0f;
    }

    __device__ __forceinline__ void add(const Held<TYPE>& held, int step) {
        const int g = lane / 4, t = lane % 4;
        uint2 x[COUNT];
        float4 own[COUNT][2];
#pragma unroll
        for (int r = 0; r < COUNT; r++) {
            x[r] = *(const uint2*)(codes[r] + step * STEP);
            own[r][0] = groups[r][8 * step], own[r][1] = groups[r][8 * step + 1];
        }
        int acc[COUNT][P::HALVES][4];
#pragma unroll
        for (int r = 0; r < COUNT; r++) {
#pragma unroll
            for (int h = 0; h < P::HALVES; h++)
#pragma unroll
                for (int i = 0; i < 4; i++) acc[r][h][i] = MAGIC_BITS;
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            u32 a[4];
            held.codes.fragment(j, a);
#pragma unroll
            for (int r = 0; r < COUNT; r++) {
                const u32 b0 = g == j ? x[r].x : 0, b1 = g == j ? x[r].y : 0;
                if constexpr (P::HALVES == 1) {
                    multiply32(acc[r][0], a, b0, b1);
                } else {
                    multiply16(acc[r][0], a[0], a[1], b0);
                    multiply16(acc[r][P::HALVES - 1], a[2], a[3], b1);
                }
            }
        }
        float s[2][2 * P::HALVES], m[2][2 * P::HALVES];
        held.low.pair(t, s[0], m[0]), held.high.pair(t, s[1], m[1]);
#pragma unroll
        for (int r = 0; r < COUNT; r++) {
            Column<TYPE> column;
#pragma unroll
            for (int e = 0; e < 2; e++) column.set(e, own[r][e].x, own[r][e].y, own[r][e].z, own[r][e].w);
#pragma unroll
            for (int w = 0; w < 2; w++) {
                int mine[2 * P::HALVES];
#pragma unroll
                for (int i = 0; i < 2 * P::HALVES; i++) mine[i] = acc[r][i % P::HALVES][2 * w + i / P::HALVES];
                const float term = pair_term<TYPE>(mine, s[w], m[w], column);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    sums[r][w] = __fadd_rn(sums[r][w], __shfl_sync(FULL, term, (lane & 28) + i));
            }
        }
    }

    __device__ __forceinline__ void put(float* to) const {
        const int g = lane / 4;
        if (lane % 4) return;
#pragma unroll
        for (int r = 0; r < COUNT; r++) to[r * TILE + g] = sums[r][0], to[r * TILE + g + 8] = sums[r][1];
    }
};
