// Sums of one row: a block of threads takes some tiles of 16 weight rows; its warps walk the chunks of k of all of them, each
// warp every so many, and ask for a step of the next chunk once they have multiplied one. Sums of chunks meet in shared memory,
// where they are added in order.
//
// A tensor-core product has eight columns. With one row, column `j` has its group `j` of a step, and of the product of weights
// of group `j` only that column is looked at: a lane then has the sums of two groups of two weight rows, which is all it scales.
//
// Shared: 16 floats for each chunk of each tile.
#pragma once
#include "quant_product.cuh"

// Most warps of a block: `WARPS` in launch/mat_mul_one.rs.
enum : int { WARPS = 8 };

// Floats from one weight row to the next of the terms of a chunk, so that no two lanes meet in a bank.
enum : int { TERMS = 12 };

// The terms of a chunk of each warp.
__device__ __forceinline__ float* terms_of(int warp) {
    __shared__ __align__(16) float terms[WARPS * TILE * TERMS];
    return terms + warp * TILE * TERMS;
}

// What integer sums begin with. That it is a constant is hidden: the compiler would add it behind each product.
__device__ __forceinline__ int4 magic_bits() {
    int4 v;
    asm volatile("mov.b32 %0, %4; mov.b32 %1, %4; mov.b32 %2, %4; mov.b32 %3, %4;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "n"(MAGIC_BITS));
    return v;
}

// What a lane holds of a step. What there is not of a last one stays what it was: its activations are zeros.
template <int TYPE> struct Held {
    typedef Packed<TYPE> P;
    static constexpr bool SUM = P::MINIMUM || P::OFFSET != 0;
    Codes<TYPE> codes;
    Scales<TYPE> low, high;
    uint2 x;
    float scale[2], sum[2], half[2];

    __device__ __forceinline__ void clear() {
        const uint4 zero = make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < P::BITS; i++) codes.bits[i] = zero;
#pragma unroll
        for (int i = 0; i < P::PAIRS; i++) codes.pairs[i] = zero;
#pragma unroll
        for (int i = 0; i < P::NIBBLES; i++) codes.nibbles[i] = zero;
#pragma unroll
        for (int i = 0; i < P::BYTES; i++) codes.bytes[i] = zero;
    }

    __device__ __forceinline__ void load_weights(const u8* step, int lane, int groups) {
        const u8* at = step + P::SCALES + 16 * lane;
        if constexpr (P::BITS != 0) codes.bits[0] = load_once(at);
#pragma unroll
        for (int i = 0; i < P::PAIRS; i++)
            if (4 * i < groups) codes.pairs[i] = load_once(at + 512 * (P::BITS + i));
#pragma unroll
        for (int i = 0; i < P::NIBBLES; i++)
            if (2 * i < groups) codes.nibbles[i] = load_once(at + 512 * (P::BITS + P::PAIRS + i));
#pragma unroll
        for (int i = 0; i < P::BYTES; i++)
            if (i < groups) codes.bytes[i] = load_once(at + 512 * i);
        load_scales(low, step, lane / 4, lane % 4), load_scales(high, step, lane / 4 + 8, lane % 4);
    }

    // Group `lane / 4` of the codes, the scales and sums of groups 2t and 2t + 1.
    __device__ __forceinline__ void load_input(const i8* code, const float4* group) {
        x = *(const uint2*)code;
#pragma unroll
        for (int e = 0; e < 2; e++) {
            if constexpr (P::HALVES == 2) {
                const float4 v = group[e];
                scale[e] = v.x, sum[e] = v.z, half[e] = v.w;
            } else if constexpr (SUM) {
                const float2 v = *(const float2*)(group + e);
                scale[e] = v.x, sum[e] = v.y;
            } else {
                scale[e] = group[e].x;
            }
        }
    }

    // The terms of the pair of groups 2t and 2t + 1 of rows g and g + 8.
    __device__ __forceinline__ void terms(int t, const int4& magic, float (&term)[2]) const {
        constexpr int H = P::HALVES;
        const u32 b[2] = {x.x, x.y};
        int mine[2][2 * H];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            u32 a[4];
            codes.fragment(j, a);
#pragma unroll
            for (int h = 0; h < H; h++) {
                int sums[4];
                if constexpr (H == 1) {
                    product32(sums, a, b[0], b[1], magic);
                } else {
                    product16(sums, a[2 * h], a[2 * h + 1], b[h], magic);
                }
                const int at = j % 2 * H + h;
#pragma unroll
                for (int w = 0; w < 2; w++)
                    if (j < 2 || t == j / 2) mine[w][at] = sums[2 * w + j % 2];
            }
        }
        float s[2][2 * H], m[2][2 * H];
        low.pair(t, s[0], m[0]), high.pair(t, s[1], m[1]);
        Column<TYPE> column;
#pragma unroll
        for (int e = 0; e < 2; e++) column.set(e, scale[e], sum[e], sum[e], half[e]);
#pragma unroll
        for (int w = 0; w < 2; w++) term[w] = pair_term<TYPE>(mine[w], s[w], m[w], column);
    }

  private:
    // Of a row's scales only those of the pair `t`, where they lie apart from others'.
    static __device__ __forceinline__ void load_scales(Scales<TYPE>& to, const u8* step, int row, int t) {
        if constexpr (TYPE == Q4_K || TYPE == Q5_K) {
            to.load(step, row);
        } else if constexpr (TYPE == IQ4_XS || TYPE == MXFP4) {
            to.words.x = to.words.y = *(const u32*)(step + 8 * row + t / 2 * 4);
            if constexpr (TYPE == IQ4_XS) to.common = *(const u16*)(step + 128 + 2 * row);
        } else if constexpr (P::WIDE) {
            const uint2 v = *(const uint2*)(step + 32 * row + 8 * t);
            to.words = to.more = make_uint4(v.x, v.y, v.x, v.y);
        } else {
            const u32 v = *(const u32*)(step + 16 * row + 4 * t);
            to.words = make_uint4(v, v, v, v);
            if constexpr (P::SIX) to.common = *(const u16*)(step + 256 + 2 * row);
            if constexpr (TYPE == Q2_K) to.common = *(const u32*)(step + 256 + 4 * row);
        }
    }

    // MAGIC + A · B over 32 k.
    static __device__ __forceinline__ void product32(int (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1, const int4& magic) {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
            : "=r"(sum[0]), "=r"(sum[1]), "=r"(sum[2]), "=r"(sum[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(magic.x), "r"(magic.y), "r"(magic.z), "r"(magic.w));
    }

    // The same over 16 k.
    static __device__ __forceinline__ void product16(int (&sum)[4], u32 a0, u32 a1, u32 b, const int4& magic) {
        asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"
            : "=r"(sum[0]), "=r"(sum[1]), "=r"(sum[2]), "=r"(sum[3])
            : "r"(a0), "r"(a1), "r"(b), "r"(magic.x), "r"(magic.y), "r"(magic.z), "r"(magic.w));
    }
};

// Adds the terms of a chunk, `pairs` of each weight row, in order.
__device__ __forceinline__ float chunk_sum(const float* terms, bool two) {
    const float4 a = *(const float4*)terms, b = *(const float4*)(terms + 4);
    float sum = __fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(0.0f, a.x), a.y), a.z), a.w);
    if (two) sum = __fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(sum, b.x), b.y), b.z), b.w);
    return sum;
}

// Block `block` of a product takes its part of span `index`. `input` may have other memory read than the product's: it is called
// once others have written what it reads, by all threads. `idle` is called when all weights have been asked for.
template <int TYPE, typename INPUT, typename IDLE>
__device__ __forceinline__ void walk_one(const Step& numbers, const Product& p, u32 block, u32 index, const INPUT& input, const IDLE& idle) {
    typedef Packed<TYPE> P;
    constexpr int CHUNK_BYTES = CHUNK * P::STEP_BYTES;
    extern __shared__ float parts[];
    const int lane = threadIdx.x, warp = threadIdx.y, warps = blockDim.y, t = lane % 4;
    const int groups = p.n_in / GROUP, steps = (groups + 7) / 8, chunks = (steps + CHUNK - 1) / CHUNK;
    const int tiles = (p.n_out + TILE - 1) / TILE, first = block * p.tiles;
    const int here = tiles - first < (int)p.tiles ? tiles - first : p.tiles;
    const u64 bytes = tile_bytes<TYPE>(groups);
    // No kernel writes the step's numbers.
    const u32 count = numbers.count(p.kind);
    start_next();
    // Which matrix is known beforehand unless a router chooses it.
    u32 matrix = 0;
    if (p.experts.data) {
        wait_for_inputs();
        if (index >= count * p.top_k) return;
        matrix = __float_as_uint(p.experts.row(index / p.top_k)[index % p.top_k]);
    }
    const u8* weight = p.weight + matrix * p.matrix_bytes + first * bytes;
    const int tiles_on = warps % here, chunks_on = warps / here;
    int tile = warp % here, chunk = warp / here;
    u32 at = tile * (u32)bytes + chunk * CHUNK_BYTES;
    const u32 on = tiles_on * (u32)bytes + chunks_on * CHUNK_BYTES, wrap = CHUNK_BYTES - here * (u32)bytes;
    bool busy = chunk < chunks;
    Held<TYPE> held[CHUNK];
#pragma unroll
    for (int c = 0; c < CHUNK; c++) {
        held[c].clear();
        const int step = CHUNK * chunk + c;
        if (busy && step < steps) held[c].load_weights(weight + at + c * P::STEP_BYTES, lane, groups - 8 * step);
    }
    if (!p.experts.data) wait_for_inputs();
    if (index >= count * p.top_k) return;
    const u64 row = input_of(p, index);
    const i8* codes = p.codes + row * steps * STEP;
    const float4* scales = p.groups + row * steps * 8;
    input(codes, scales);
    codes += 8 * lane, scales += 2 * t;
#pragma unroll
    for (int c = 0; c < CHUNK; c++) {
        const int step = CHUNK * chunk + c;
        if (busy && step < steps) held[c].load_input(codes + step * STEP, scales + step * 8);
    }
    const int4 magic = magic_bits();
    float *own = terms_of(warp), *put = own + lane / 4 * TERMS + t;
    while (busy) {
        int next_tile = tile + tiles_on, next = chunk + chunks_on;
        u32 then = at + on;
        if (next_tile >= here) next_tile -= here, next++, then += wrap;
        const bool more = next < chunks, two = CHUNK * chunk + 1 < steps;
#pragma unroll
        for (int c = 0; c < CHUNK; c++) {
            const int step = CHUNK * next + c;
            if (c == 0 || two) {
                float term[2];
                held[c].terms(t, magic, term);
                put[4 * c] = term[0], put[8 * TERMS + 4 * c] = term[1];
            }
            if (more && step < steps) {
                held[c].load_weights(weight + then + c * P::STEP_BYTES, lane, groups - 8 * step);
                held[c].load_input(codes + step * STEP, scales + step * 8);
            }
        }
        __syncwarp();
        if (lane < TILE) parts[(chunk * here + tile) * TILE + lane] = chunk_sum(own + lane * TERMS, two);
        __syncwarp();
        tile = next_tile, chunk = next, at = then, busy = more;
    }
    idle(matrix);
    __syncthreads();
    float* out = p.out.row(index / p.top_k) + (u64)(index % p.top_k) * p.n_out;
    for (int i = warp * 32 + lane; i < here * TILE; i += 32 * warps) {
        const u32 column = first * TILE + i;
        if (column >= p.n_out) break;
        float total = 0.0f;
        for (int c = 0; c < chunks; c++) total = __fadd_rn(total, parts[c * here * TILE + i]);
        out[column] = total;
    }
}
