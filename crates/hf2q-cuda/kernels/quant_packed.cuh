// Quantized weights as products read them.
//
// A matrix is cut into tiles of 16 rows, a tile into steps of 256 k (the last one may be shorter, in groups of 32). A step
// holds the scales of its 16 rows, then its codes in planes of 1, 2, 4 or 8 bits. A plane is a sequence of loads of 16 bytes
// for each of 32 lanes: lane (g, t) = (lane / 4, lane % 4) gets the codes of rows g and g + 8 that the fragment of an
// m16n8k32 product wants from it: of each group of 32, k = 4t .. 4t + 4 and 16 + 4t .. 16 + 4t + 4. Four neighbouring codes
// make a set; a group has four sets a lane, numbered as the fragment's registers: (row g, first half), (row g + 8, first),
// (row g, second), (row g + 8, second).
#pragma once
#include "raw.cuh"

// 16 bytes that are read once: they do not displace what the first cache holds.
__device__ __forceinline__ uint4 load_once(const void* from) {
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
    return v;
}

// Brings the lines of `bytes` bytes, at most 8192, from memory to the second cache.
__device__ __forceinline__ void prefetch(const u8* from, int bytes, int lane) {
    if (128 * lane < bytes) asm volatile("prefetch.global.L2 [%0];" ::"l"(from + 128 * lane));
    if (128 * lane + 4096 < bytes) asm volatile("prefetch.global.L2 [%0];" ::"l"(from + 128 * lane + 4096));
}

// Component `i` of a vector; a constant after unrolling.
__device__ __forceinline__ u32 component(const uint4& v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

enum : int { STEP = 256, GROUP = 32, TILE = 16 };

template <int TYPE> struct Packed {
    // Nibbles are indices of a table of levels.
    static constexpr bool TABLE = TYPE == IQ4_NL || TYPE == IQ4_XS || TYPE == MXFP4;
    // Loads of each plane in a full step.
    static constexpr int BITS = TYPE == Q5_0 || TYPE == Q5_1 || TYPE == Q5_K || TYPE == Q3_K ? 1 : 0;
    static constexpr int PAIRS = TYPE == Q6_K || TYPE == Q2_K || TYPE == Q3_K ? 2 : 0;
    static constexpr int BYTES = TYPE == Q8_0 ? 8 : 0;
    static constexpr int NIBBLES = BYTES || TYPE == Q2_K || TYPE == Q3_K ? 0 : 4;
    static constexpr int LOADS = BITS + PAIRS + NIBBLES + BYTES;
    // Scales of a group of 32; weights are `scale * code + minimum` or `scale * (code - offset)`.
    static constexpr int HALVES = TYPE == Q2_K || TYPE == Q3_K || TYPE == Q6_K ? 2 : 1;
    static constexpr bool MINIMUM = TYPE == Q4_1 || TYPE == Q5_1 || TYPE == Q4_K || TYPE == Q5_K || TYPE == Q2_K;
    static constexpr int OFFSET = TYPE == Q4_0 ? 8 : TYPE == Q5_0 ? 16 : TYPE == Q3_K ? 4 : TYPE == Q6_K ? 32 : 0;
    // Bytes of the scales of 16 rows.
    static constexpr bool SIX = TYPE == Q3_K || TYPE == Q6_K;
    static constexpr bool WIDE = TYPE == Q4_1 || TYPE == Q5_1;
    static constexpr int SCALES = WIDE ? 512 : SIX ? 288 : TYPE == Q2_K ? 320 : TYPE == IQ4_XS ? 160 : TYPE == MXFP4 ? 128 : 256;
    static constexpr int STEP_BYTES = SCALES + 512 * LOADS;
};

// Loads of a step of `groups` groups.
template <int TYPE> __device__ __forceinline__ int step_loads(int groups) {
    typedef Packed<TYPE> P;
    return P::BITS + (P::PAIRS ? (groups + 3) / 4 : 0) + (P::NIBBLES ? (groups + 1) / 2 : 0) + (P::BYTES ? groups : 0);
}

// Bytes of a tile of 16 rows of `groups` groups.
template <int TYPE> __device__ __forceinline__ u64 tile_bytes(int groups) {
    typedef Packed<TYPE> P;
    const int rest = groups % 8;
    return (u64)(groups / 8) * P::STEP_BYTES + (rest ? P::SCALES + 512 * step_loads<TYPE>(rest) : 0);
}

// The codes of a pair of groups that a lane holds.
template <int TYPE> struct PairCodes {
    typedef Packed<TYPE> P;
    u32 bits;
    uint2 pairs;
    uint4 nibbles, bytes[P::BYTES ? 2 : 1];

    // Loads those of pair `p` of a step of `groups` groups, whose loads of the lane begin at `at`; what there is not is zero.
    __device__ __forceinline__ void load(const u8* at, int p, int groups) {
        const uint4 zero = make_uint4(0, 0, 0, 0);
        if constexpr (P::BITS != 0) bits = groups > 0 ? __ldg((const u32*)at + p) : 0;
        if constexpr (P::PAIRS != 0)
            pairs = p / 2 * 4 < groups ? __ldg((const uint2*)(at + 512 * (P::BITS + p / 2)) + p % 2) : make_uint2(0, 0);
        if constexpr (P::NIBBLES != 0) nibbles = 2 * p < groups ? load_once(at + 512 * (P::BITS + P::PAIRS + p)) : zero;
        if constexpr (P::BYTES != 0) {
            bytes[0] = 2 * p < groups ? load_once(at + 1024 * p) : zero;
            bytes[1] = 2 * p + 1 < groups ? load_once(at + 1024 * p + 512) : zero;
        }
    }

    // The fragment of group `e` of the pair.
    __device__ __forceinline__ void fragment(int e, u32 (&a)[4]) const {
        if constexpr (P::BYTES != 0) {
            a[0] = bytes[e].x, a[1] = bytes[e].y, a[2] = bytes[e].z, a[3] = bytes[e].w;
        } else {
#pragma unroll
            for (int s = 0; s < 4; s++) a[s] = set(e, s);
        }
    }

  private:
    // `u` with bit field `from` moved to `to`.
    static __device__ __forceinline__ u32 move(u32 u, int from, int to) {
        return from < to ? u << (to - from) : u >> (from - to);
    }

    __device__ __forceinline__ u32 set(int e, int s) const {
        u32 code = 0;
        if constexpr (P::NIBBLES != 0) {
            const u32 word = component(nibbles, 2 * e + s % 2);
            if constexpr (P::TABLE) return levels(s / 2 ? word >> 16 : word);
            code = (s / 2 ? word >> 4 : word) & 0x0f0f0f0fu;
        }
        if constexpr (P::PAIRS != 0) {
            const int to = TYPE == Q6_K ? 4 : 0;
            code |= move(e ? pairs.y : pairs.x, 2 * s, to) & 0x03030303u << to;
        }
        if constexpr (P::BITS != 0) {
            const int to = TYPE == Q3_K ? 2 : 4;
            code |= move(bits, 4 * e + s, to) & 0x01010101u << to;
        }
        return code;
    }

    // The levels of four nibbles in the low half of a word.
    static __device__ __forceinline__ u32 levels(u32 word) {
        const bool fp4 = TYPE == MXFP4;
        const u32 t0 = fp4 ? 0x03020100u : 0xbfad9881u, t1 = fp4 ? 0x0c080604u : 0xf6eaddcfu;
        const u32 t2 = fp4 ? 0xfdfeff00u : 0x26190d01u, t3 = fp4 ? 0xf4f8fafcu : 0x71594535u;
        const u32 low = __byte_perm(t0, t1, word & 0x7777u), high = __byte_perm(t2, t3, word & 0x7777u);
        return __byte_perm(low, high, 0x3210u + (word >> 1 & 0x4444u));
    }
};

// The codes of one step that a lane holds.
template <int TYPE> struct Codes {
    typedef Packed<TYPE> P;
    uint4 bits[P::BITS ? P::BITS : 1], pairs[P::PAIRS ? P::PAIRS : 1], nibbles[P::NIBBLES ? P::NIBBLES : 1],
        bytes[P::BYTES ? P::BYTES : 1];

    // Loads what there is of `groups` groups of a step; the rest is zero.
    __device__ __forceinline__ void load(const u8* step, int lane, int groups) {
        const uint4 zero = make_uint4(0, 0, 0, 0);
        const u8* at = step + P::SCALES + 16 * lane;
        if constexpr (P::BITS != 0) bits[0] = groups > 0 ? load_once(at) : zero;
        if constexpr (P::PAIRS != 0) {
#pragma unroll
            for (int i = 0; i < P::PAIRS; i++) pairs[i] = 4 * i < groups ? load_once(at + 512 * (P::BITS + i)) : zero;
        }
        if constexpr (P::NIBBLES != 0) {
#pragma unroll
            for (int i = 0; i < P::NIBBLES; i++)
                nibbles[i] = 2 * i < groups ? load_once(at + 512 * (P::BITS + P::PAIRS + i)) : zero;
        }
        if constexpr (P::BYTES != 0) {
#pragma unroll
            for (int i = 0; i < P::BYTES; i++) bytes[i] = i < groups ? load_once(at + 512 * i) : zero;
        }
    }

    // The fragment of group `j`.
    __device__ __forceinline__ void fragment(int j, u32 (&a)[4]) const { pair(j / 2).fragment(j % 2, a); }

  private:
    __device__ __forceinline__ PairCodes<TYPE> pair(int p) const {
        PairCodes<TYPE> own;
        if constexpr (P::BITS != 0) own.bits = component(bits[0], p);
        if constexpr (P::PAIRS != 0) own.pairs = p % 2 ? make_uint2(pairs[p / 2].z, pairs[p / 2].w) : make_uint2(pairs[p / 2].x, pairs[p / 2].y);
        if constexpr (P::NIBBLES != 0) own.nibbles = nibbles[p];
        if constexpr (P::BYTES != 0) own.bytes[0] = bytes[2 * p], own.bytes[1] = bytes[2 * p + 1];
        return own;
    }
};

// The scales of one row of a step, as they lie there: taking them apart waits for the load.
template <int TYPE> struct Scales {
    typedef Packed<TYPE> P;
    uint4 words, more;
    u32 common;

    __device__ __forceinline__ void load(const u8* step, int row) {
        if constexpr (TYPE == IQ4_XS || TYPE == MXFP4) {
            const uint2 v = *(const uint2*)(step + 8 * row);
            words.x = v.x, words.y = v.y;
            if constexpr (TYPE == IQ4_XS) common = *(const u16*)(step + 128 + 2 * row);
        } else if constexpr (P::WIDE) {
            words = *(const uint4*)(step + 32 * row);
            more = *(const uint4*)(step + 32 * row + 16);
        } else {
            words = *(const uint4*)(step + 16 * row);
            if constexpr (P::SIX) common = *(const u16*)(step + 256 + 2 * row);
            if constexpr (TYPE == Q2_K) common = *(const u32*)(step + 256 + 4 * row);
        }
    }

    // Scales, and minimums where the format has them, of groups 2t and 2t + 1: for each group, for each half.
    __device__ __forceinline__ void pair(int t, float (&s)[2 * P::HALVES], float (&m)[2 * P::HALVES]) const {
        const u32 w = pick(words, t);
        if constexpr (TYPE == IQ4_XS || TYPE == MXFP4) {
            const u32 two = t < 2 ? words.x : words.y, own = t % 2 ? two >> 16 : two & 0xffffu;
            if constexpr (TYPE == MXFP4) {
                s[0] = e8m0_half(own & 255), s[1] = e8m0_half(own >> 8);
            } else {
                const float d = half_to_float((u16)common);
                s[0] = __fmul_rn(d, (float)(i8)(own & 255)), s[1] = __fmul_rn(d, (float)(i8)(own >> 8));
            }
        } else if constexpr (P::WIDE) {
            const uint4 v = t < 2 ? words : more;
            const u32 a = t % 2 ? v.z : v.x, b = t % 2 ? v.w : v.y;
            s[0] = half_to_float((u16)(a & 0xffffu)), m[0] = half_to_float((u16)(a >> 16));
            s[1] = half_to_float((u16)(b & 0xffffu)), m[1] = half_to_float((u16)(b >> 16));
        } else if constexpr (TYPE == Q4_K || TYPE == Q5_K) {
            // Bytes of the scale and the minimum are on top of the four words.
            const float d = half_to_float((u16)(words.x >> 24 | words.y >> 24 << 8));
            const float least = -half_to_float((u16)(words.z >> 24 | words.w >> 24 << 8));
            s[0] = __fmul_rn(d, (float)(w & 63)), s[1] = __fmul_rn(d, (float)(w >> 6 & 63));
            m[0] = __fmul_rn(least, (float)(w >> 12 & 63)), m[1] = __fmul_rn(least, (float)(w >> 18 & 63));
        } else if constexpr (P::SIX) {
            const float d = half_to_float((u16)(common));
#pragma unroll
            for (int i = 0; i < 4; i++) s[i] = __fmul_rn(d, (float)(i8)(w >> 8 * i & 255));
        } else if constexpr (TYPE == Q2_K) {
            const float d = half_to_float((u16)(common & 0xffffu)), least = -half_to_float((u16)(common >> 16));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[i] = __fmul_rn(d, (float)(w >> 8 * i & 15));
                m[i] = __fmul_rn(least, (float)(w >> 8 * i + 4 & 15));
            }
        } else {
            s[0] = half_to_float((u16)(w & 0xffffu)), s[1] = half_to_float((u16)(w >> 16));
        }
    }

  private:
    static __device__ __forceinline__ u32 pick(const uint4& v, int t) {
        return t < 2 ? (t ? v.y : v.x) : (t == 2 ? v.z : v.w);
    }
};
