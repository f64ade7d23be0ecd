// Products of quantized weights with some rows: each column of a tensor-core product is a row.
#include "quant_walk.cuh"

template <int WEIGHTS, int COUNT> struct Columns {
    static constexpr int TYPE = WEIGHTS, WIDTH = 8 * COUNT;
    typedef Packed<TYPE> P;
    // Codes of column g and scales of columns 2t and 2t + 1 of each product, from the first on.
    const i8* codes;
    const float4* groups;
    u32 codes_at[COUNT], groups_at[COUNT][2];
    float sums[COUNT][4];
    int lane;

    __device__ __forceinline__ void begin(const Product& p, const Span& span, int lane, int steps) {
        this->lane = lane;
        codes = p.codes + 8 * (lane % 4), groups = p.groups;
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
            const u32 c = 8 * n + lane / 4;
            codes_at[n] = input_of(p, span.entry(c < span.count ? c : 0)) * steps;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const u32 column = 8 * n + 2 * (lane % 4) + i;
                groups_at[n][i] = input_of(p, span.entry(column < span.count ? column : 0)) * steps;
            }
        }
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int n = 0; n < COUNT; n++) sums[n][0] = sums[n][1] = sums[n][2] = sums[n][3] = 0.0f;
    }

    __device__ __forceinline__ void add(const Held<TYPE>& held, int step) {
#pragma unroll
        for (int pair = 0; pair < 4; pair++) {
            float s[2][2 * P::HALVES], m[2][2 * P::HALVES];
            held.low.pair(pair, s[0], m[0]), held.high.pair(pair, s[1], m[1]);
            u32 a[2][4];
            held.codes.fragment(2 * pair, a[0]), held.codes.fragment(2 * pair + 1, a[1]);
#pragma unroll
            for (int n = 0; n < COUNT; n++) {
                int acc[2 * P::HALVES][4];
                Column<TYPE> column[2];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int group = 2 * pair + e;
                    const uint2 b = *(const uint2*)(codes + (u64)(codes_at[n] + step) * STEP + group * GROUP);
                    multiply_group<TYPE>(acc, e, a[e], b);
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        const float4 v = groups[(u64)(groups_at[n][i] + step) * 8 + group];
                        column[i].set(e, v.x, v.y, v.z, v.w);
                    }
                }
                add_pair<TYPE>(sums[n], acc, s, m, column);
            }
        }
    }

    __device__ __forceinline__ void put(float* to) const {
#pragma unroll
        for (int n = 0; n < COUNT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) to[(8 * n + 2 * (lane % 4) + i % 2) * TILE + lane / 4 + i / 2 * 8] = sums[n][i];
    }
};

// Most warps of a block, of which a multiprocessor has two: `Kernel::warps` in launch/mat_mul.rs.
constexpr int WARPS = (Packed<WEIGHT>::HALVES == 2 ? 6 : 8) - (COLUMNS == 2 ? 2 : 0);

extern "C" __global__ void __launch_bounds__(32 * WARPS, 2) mat_mul_cols(const Step step, const __grid_constant__ Products args) {
    walk_products<Columns<WEIGHT, COLUMNS>>(step, args);
}
