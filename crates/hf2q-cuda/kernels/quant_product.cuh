// What the kernels of quantized products share: which rows a block of threads multiplies, the tensor-core product of a
// fragment, and the one order of accumulation.
//
// Of an output element, k is cut into chunks of 512, a chunk into pairs of groups of 32. Integer sums of a group (of its
// halves where they have scales of their own) are exact. `pair_term` scales and adds those of a pair; a chunk adds its pairs
// in ascending order, an element its chunks in ascending order, each from zero. Neither the number of rows nor which warp
// does what changes that.
#pragma once
#include "mat_mul_spans.cuh"
#include "quant_packed.cuh"

// Steps of a chunk.
enum : int { CHUNK = 2 };

// `Product` in launch/mat_mul.rs.
struct Product {
    const u8* weight;      // tiles of quant_packed.cuh, matrix after matrix
    u64 matrix_bytes;      // from one matrix of a stack to the next
    const i8* codes;       // quantized rows
    const float4* groups;
    Rows out;
    Rows experts;          // chosen experts of each row; null: one matrix for all
    const u32* list;       // spans of mat_mul_lists.cu; null: a span has neighbouring entries, or one where experts choose
    u32 kind, n_in, n_out;
    u32 top_k;             // 1 where there are no experts
    u32 per_expert;        // each entry has an input of its own
    u32 tiles;             // of a block of threads
};

// Products of one input with weights of one format, in one launch: `Products` in launch/mat_mul.rs.
struct Products {
    Product of[3];
    // Blocks of threads up to the end of each.
    u32 ends[3];
    u32 padding;

    // Which product a block belongs to; `block` becomes its number within it. They differ in weight, result and `n_out`.
    __device__ __forceinline__ const Product& find(u32& block) const {
        const u32 which = (block >= ends[0]) + (block >= ends[1]);
        block -= which ? ends[which - 1] : 0;
        return of[which];
    }
};

// 1.5 · 2^23: an integer sum added to its bits is the mantissa of a float.
#define MAGIC 12582912.0f
#define MAGIC_BITS 0x4b400000

// sum += A · B over 32 k.
__device__ __forceinline__ void multiply32(int (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same over 16 k.
__device__ __forceinline__ void multiply16(int (&sum)[4], u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a0), "r"(a1), "r"(b));
}

// What a column adds to a pair of groups: its scales, what to take off the float of a sum, and its sums in its scale.
template <int TYPE> struct Column {
    typedef Packed<TYPE> P;
    float scale[2], zero[2 * P::HALVES], sum[2 * P::HALVES];

    // What is derived of the scale and the sum of a group, or of its half.
    static __device__ __forceinline__ float derived(float d, float s) {
        return P::OFFSET ? __fmaf_rn((float)P::OFFSET, s, MAGIC) : __fmul_rn(s, d);
    }

    // Group `e` of the pair: its scale, and what is derived of its sum or of those of its halves.
    __device__ __forceinline__ void hold(int e, float d, float first, float second) {
        scale[e] = d;
#pragma unroll
        for (int h = 0; h < P::HALVES; h++) {
            const float own = h ? second : first;
            zero[e * P::HALVES + h] = P::OFFSET ? own : MAGIC;
            sum[e * P::HALVES + h] = P::MINIMUM ? own : 0.0f;
        }
    }

    __device__ __forceinline__ void set(int e, float d, float whole, float first, float second) {
        hold(e, d, derived(d, P::HALVES == 1 ? whole : first), derived(d, second));
    }
};

// The scaled sum of a pair of groups. `sums` are bits of floats that hold an integer above MAGIC.
template <int TYPE>
__device__ __forceinline__ float pair_term(const int (&sums)[2 * Packed<TYPE>::HALVES], const float (&s)[2 * Packed<TYPE>::HALVES],
                                           const float (&m)[2 * Packed<TYPE>::HALVES], const Column<TYPE>& x) {
    typedef Packed<TYPE> P;
    float term = 0.0f;
#pragma unroll
    for (int i = 0; i < 2 * P::HALVES; i++) {
        const float sum = __fsub_rn(__int_as_float(sums[i]), x.zero[i]);
        const float scale = __fmul_rn(s[i], x.scale[i / P::HALVES]);
        term = i ? __fmaf_rn(sum, scale, term) : __fmul_rn(sum, scale);
        if constexpr (P::MINIMUM) term = __fmaf_rn(m[i], x.sum[i], term);
    }
    return term;
}

// The sums of group `e` of a pair for all columns of a product, from MAGIC up.
template <int TYPE>
__device__ __forceinline__ void multiply_group(int (&acc)[2 * Packed<TYPE>::HALVES][4], int e, const u32 (&a)[4], uint2 b) {
    constexpr int H = Packed<TYPE>::HALVES;
#pragma unroll
    for (int h = 0; h < H; h++)
#pragma unroll
        for (int i = 0; i < 4; i++) acc[e * H + h][i] = MAGIC_BITS;
    if constexpr (H == 1) {
        multiply32(acc[e], a, b.x, b.y);
    } else {
        multiply16(acc[2 * e], a[0], a[1], b.x);
        multiply16(acc[2 * e + 1], a[2], a[3], b.y);
    }
}

// Adds the term of a pair to the four elements that a lane has of a product: rows g and g + 8, two columns each.
template <int TYPE>
__device__ __forceinline__ void add_pair(float (&sums)[4], const int (&acc)[2 * Packed<TYPE>::HALVES][4],
                                         const float (&s)[2][2 * Packed<TYPE>::HALVES],
                                         const float (&m)[2][2 * Packed<TYPE>::HALVES], const Column<TYPE> (&column)[2]) {
    constexpr int H = Packed<TYPE>::HALVES;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int own[2 * H];
#pragma unroll
        for (int k = 0; k < 2 * H; k++) own[k] = acc[k][i];
        sums[i] = __fadd_rn(sums[i], pair_term<TYPE>(own, s[i / 2], m[i / 2], column[i % 2]));
    }
}
