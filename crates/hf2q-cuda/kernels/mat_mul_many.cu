// Products of quantized weights with many rows: a block multiplies 32 · WARPS weight rows with 32 entries. Activations of a
// step are in shared memory, two steps at a time; weights go from memory to registers, in fragments.
//
// grid: (spans, blocks of tiles of all products); block: 32 · WARPS.
#include "quant_product.cuh"

enum : int {
    COLUMNS = 32,
    // Bytes of a column's codes: the rest of 32 keeps four columns in different banks.
    PITCH = STEP + 32,
    // Products between tests for the end of a span.
    MIX = 4,
    // Neighbouring tiles of a warp, which share what is read of the columns.
    OWN = 2,
};

// A step of the columns. Scales and sums lie by group, then by column.
template <int SUMS> struct Stage {
    i8 codes[COLUMNS * PITCH];
    float scales[8 * COLUMNS];
    float sums[SUMS ? SUMS : 1][8 * COLUMNS];
};

__device__ __forceinline__ void copy16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from));
}
__device__ __forceinline__ void copy4(void* to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from));
}

// Queues the copies of a step.
template <int SUMS, int THREADS>
__device__ __forceinline__ void fetch(Stage<SUMS>& to, const Product& p, const u32* inputs, int steps, int step) {
#pragma unroll
    for (int i = threadIdx.x; i < COLUMNS * 16; i += THREADS) {
        const int c = i / 16, part = i % 16 * 16;
        copy16(to.codes + c * PITCH + part, p.codes + (u64)inputs[c] * steps * STEP + step * STEP + part);
    }
#pragma unroll
    for (int i = threadIdx.x; i < COLUMNS * 8; i += THREADS) {
        const int c = i / 8, group = i % 8;
        const float* from = (const float*)(p.groups + (u64)inputs[c] * steps * 8 + step * 8 + group);
        copy4(to.scales + group * COLUMNS + c, from);
        if constexpr (SUMS == 1) copy4(to.sums[0] + group * COLUMNS + c, from + 1);
        if constexpr (SUMS == 2) {
            copy4(to.sums[0] + group * COLUMNS + c, from + 2);
            copy4(to.sums[SUMS - 1] + group * COLUMNS + c, from + 3);
        }
    }
    asm volatile("cp.async.commit_group;");
}

template <int TYPE, int COUNT> __device__ __forceinline__ void many(const Step& numbers, const Products& products) {
    typedef Packed<TYPE> P;
    constexpr int N = COLUMNS / 8, SUMS = P::MINIMUM || P::OFFSET ? P::HALVES : 0;
    typedef Stage<SUMS> Stages;
    u32 block = blockIdx.y;
    const Product& own = products.find(block);
    const Product& p = products.of[0];
    extern __shared__ __align__(16) u8 shared[];
    Stages* stages = (Stages*)shared;
    __shared__ u32 inputs[COLUMNS];
    Span span;
    start_next();
    wait_for_inputs();
    if (!find_span(numbers, p, blockIdx.x, COLUMNS, span)) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int groups = p.n_in / GROUP, steps = (groups + 7) / 8;
    const u32 tiles = (own.n_out + TILE - 1) / TILE, tile = (block * COUNT + warp) * OWN;
    const u64 bytes = tile_bytes<TYPE>(groups);
    const bool active = tile < tiles;
    const u8* weight[OWN];
#pragma unroll
    for (int o = 0; o < OWN; o++)
        weight[o] = own.weight + span.matrix * p.matrix_bytes + (tile + o < tiles ? tile + o : tiles - 1) * bytes;
    if (threadIdx.x < COLUMNS) inputs[threadIdx.x] = input_of(p, span.entry(threadIdx.x < span.count ? threadIdx.x : 0));
    __syncthreads();
    fetch<SUMS, 32 * COUNT>(stages[0], p, inputs, steps, 0);
    float totals[OWN][N][4], sums[OWN][N][4];
#pragma unroll
    for (int o = 0; o < OWN; o++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) totals[o][n][i] = sums[o][n][i] = 0.0f;
    for (int step = 0; step < steps; step++) {
        Codes<TYPE> codes[OWN];
        Scales<TYPE> low[OWN], high[OWN];
        if (active) {
#pragma unroll
            for (int o = 0; o < OWN; o++) {
                const u8* at = weight[o] + (u64)step * P::STEP_BYTES;
                codes[o].load(at, lane, groups - 8 * step);
                low[o].load(at, g), high[o].load(at, g + 8);
            }
        }
        asm volatile("cp.async.wait_group 0;");
        __syncthreads();
        if (step + 1 < steps) fetch<SUMS, 32 * COUNT>(stages[(step + 1) % 2], p, inputs, steps, step + 1);
        if (!active) continue;
        if (step + 1 < steps) {
#pragma unroll
            for (int o = 0; o < OWN; o++) prefetch(weight[o] + (u64)(step + 1) * P::STEP_BYTES, P::STEP_BYTES, lane);
        }
        const Stages& x = stages[step % 2];
#pragma unroll
        for (int pair = 0; pair < 4; pair++) {
            float s[OWN][2][2 * P::HALVES], m[OWN][2][2 * P::HALVES];
            u32 a[OWN][2][4];
#pragma unroll
            for (int o = 0; o < OWN; o++) {
                low[o].pair(pair, s[o][0], m[o][0]), high[o].pair(pair, s[o][1], m[o][1]);
                codes[o].fragment(2 * pair, a[o][0]), codes[o].fragment(2 * pair + 1, a[o][1]);
            }
#pragma unroll
            for (int n = 0; n < N; n++) {
                // The last span of an expert has few entries. Between the tests the compiler mixes products.
                if (n % MIX == 0 && 8 * n >= span.count) break;
                uint2 b[2];
                Column<TYPE> column[2];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int group = 2 * pair + e, at = group * COLUMNS + 8 * n + 2 * t;
                    b[e] = *(const uint2*)(x.codes + (8 * n + g) * PITCH + group * GROUP + 8 * t);
                    const float2 d = *(const float2*)(x.scales + at);
                    float2 first = make_float2(0.0f, 0.0f), second = first;
                    if constexpr (SUMS > 0) first = *(const float2*)(x.sums[0] + at);
                    if constexpr (SUMS > 1) second = *(const float2*)(x.sums[SUMS - 1] + at);
                    column[0].set(e, d.x, first.x, first.x, second.x);
                    column[1].set(e, d.y, first.y, first.y, second.y);
                }
#pragma unroll
                for (int o = 0; o < OWN; o++) {
                    int acc[2 * P::HALVES][4];
                    multiply_group<TYPE>(acc, 0, a[o][0], b[0]);
                    multiply_group<TYPE>(acc, 1, a[o][1], b[1]);
                    add_pair<TYPE>(sums[o][n], acc, s[o], m[o], column);
                }
            }
        }
        if (step % CHUNK == CHUNK - 1 || step + 1 == steps) {
#pragma unroll
            for (int o = 0; o < OWN; o++)
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        totals[o][n][i] = __fadd_rn(totals[o][n][i], sums[o][n][i]), sums[o][n][i] = 0.0f;
        }
    }
#pragma unroll
    for (int o = 0; o < OWN; o++) {
        const u32 row = (tile + o) * TILE + g;
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const u32 c = 8 * n + 2 * t + i;
                if (c >= span.count) continue;
                float* out = output_of(own, span.entry(c));
                if (row < own.n_out) out[row] = totals[o][n][i];
                if (row + 8 < own.n_out) out[row + 8] = totals[o][n][2 + i];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 2) mat_mul_many(const Step step, const __grid_constant__ Products args) {
    many<WEIGHT, WARPS>(step, args);
}
