// What blocks of attention.cu share, and their scores of stored keys.
#pragma once
#include "attention.cuh"

#define SPAN 1
#define PARTS 4
#define THREADS 256
#define DIMS 2
// Weight of a key that a query does not see: -0, which no exponential is.
#define UNSEEN 0x80000000u

// What threads of a block share.
struct Shared {
    float *q;        // [QUERIES][components], or 33 floats for each group of 32 where keys are formed
    float *partial;  // [PARTS][QUERIES][PAGE]
    float *p;        // [QUERIES][PAGE]
    float *all;      // [QUERIES][components]: sums of the spans so far
    float *tile;     // values, 33 floats for each group of 32
    float *key_levels, *value_levels;
    float *largest, *total;          // of a span, by query
    float *all_largest, *all_total;  // of spans so far
    float *factor;
    float2 *turns;  // cosine and sine of every pair at the start of a page
    u32 *slots;
};

__device__ __forceinline__ Shared share(float *memory, u32 width) {
    Shared s;
    s.q = memory;
    s.partial = s.q + QUERIES * width / 32 * 34;
    s.p = s.partial + PARTS * QUERIES * PAGE;
    s.all = s.p + QUERIES * PAGE;
    s.tile = s.all + QUERIES * width;
    s.key_levels = s.tile + THREADS * 33;
    s.value_levels = s.key_levels + 256;
    s.largest = s.value_levels + 256;
    s.total = s.largest + QUERIES;
    s.all_largest = s.total + QUERIES;
    s.all_total = s.all_largest + QUERIES;
    s.factor = s.all_total + QUERIES;
    s.turns = (float2 *)(s.factor + QUERIES);
    s.slots = (u32 *)(s.turns + width / 2);
    return s;
}

__device__ __forceinline__ void load_levels(const Vectors &v, float *to) {
    if (v.format >= KV_TQ2)
        for (u32 i = threadIdx.x; i < 1u << v.bits; i += THREADS) to[i] = v.levels[i];
}

// Levels and queries as a source needs them.
__device__ __forceinline__ void enter(const Attention &args, const Source &from, const Tile &t, const Shared &s) {
    u32 n = from.cache.head_dim, width = args.width();
    __syncthreads();
    load_levels(from.cache.keys, s.key_levels);
    load_levels(from.cache.values, s.value_levels);
    for (u32 i = threadIdx.x; i < QUERIES * width; i += THREADS) {
        u32 query = i / width, d = i % width;
        bool real = query < t.queries() && d < n;
        u32 at = from.cache.keys.words ? i : i + i / 32;
        s.q[at] = real ? args.q.row(t.at + t.row_of(query))[t.head_of(query) * n + d] : 0.0f;
    }
    if (from.cache.keys.format >= KV_TQ2) rotate(s.q, QUERIES * width, from.cache.keys.block);
    __syncthreads();
}

// Where the keys of a page lie that one of the queries sees.
__device__ __forceinline__ void find_slots(const Step &step, const Source &from, const Tile &t, const Shared &s, u32 page) {
    if (threadIdx.x < PAGE) {
        u32 position = page * PAGE + threadIdx.x, base = step.tree_base(t.row), slot = NO_SLOT;
        if (position >= t.low && position < t.high) {
            if (position >= base && base <= step.position(t.row)) {
                slot = step.at(step.group(from.group, GROUP_PATHS_AT) + t.row * step.at(STEP_PATH_LEN) + position - base);
            } else {
                u32 tables = step.group(from.group, GROUP_TABLES_AT), pages = step.group(from.group, GROUP_PAGES);
                slot = step.at(tables + step.sequence(t.row) * pages + page) * PAGE + threadIdx.x;
            }
        }
        s.slots[threadIdx.x] = slot;
    }
    __syncthreads();
}

// Dot products of the queries with a quarter of a key.
template <typename F>
__device__ __forceinline__ void score(const Cache &cache, const Tile &t, const Shared &s, u32 slot, u32 part, float (&sums)[QUERIES]) {
    u32 groups = cache.groups(), each = (groups + PARTS - 1) / PARTS, p = slot % PAGE, width = groups * 32;
    u32 *block = cache.block_of_keys(slot / PAGE, t.kv_head);
    const u16 *scales = scales_of(block, cache.keys, groups);
    u32 end = min(groups, (part + 1) * each);
    for (u32 g = part * each; g < end; g++) {
        const u32 *from = block + key_word(F::BITS, g, 0, p);
        float sums_of_group[QUERIES];
#pragma unroll
        for (int i = 0; i < QUERIES; i++) sums_of_group[i] = F::BITS == 8 && !F::TURBO ? 0.0f : sums[i];
        // As many components as words that are loaded at once hold.
        constexpr int COUNT = F::PIECE * 32 / F::BITS;
#pragma unroll 2
        for (int first = 0; first < 32; first += COUNT) {
            u32 words[F::PIECE];
            F::load(from + first * F::BITS / 32 / F::VECTOR * PAGE * F::VECTOR, PAGE * F::VECTOR, words);
#pragma unroll
            for (int d = 0; d < COUNT; d += 4) {
                float k[4];
#pragma unroll
                for (int j = 0; j < 4; j++) k[j] = F::value(words, d + j, s.key_levels);
#pragma unroll
                for (int i = 0; i < QUERIES; i++) {
                    float4 q = *(const float4 *)(s.q + i * width + g * 32 + first + d);
                    float sum = __fmaf_rn(q.x, k[0], sums_of_group[i]);
                    sum = __fmaf_rn(q.y, k[1], sum);
                    sum = __fmaf_rn(q.z, k[2], sum);
                    sums_of_group[i] = __fmaf_rn(q.w, k[3], sum);
                }
            }
        }
        float scale = F::BITS == 8 && !F::TURBO ? half_to_float(scales[g * PAGE + p]) : 0.0f;
#pragma unroll
        for (int i = 0; i < QUERIES; i++)
            sums[i] = F::BITS == 8 && !F::TURBO ? __fmaf_rn(sums_of_group[i], scale, sums[i]) : sums_of_group[i];
    }
    if (F::TURBO && cache.keys.scales) {
        // A quarter lies within one block.
        float scale = half_to_float(scales[min(part * each * 32 / cache.keys.block, cache.keys.scales - 1) * PAGE + p]);
#pragma unroll
        for (int i = 0; i < QUERIES; i++) sums[i] *= scale;
    }
}

__device__ __forceinline__ void scores(const Cache &cache, const Tile &t, const Shared &s) {
    u32 key = threadIdx.x % PAGE, part = threadIdx.x / PAGE, slot = s.slots[key];
    float sums[QUERIES];
#pragma unroll
    for (int i = 0; i < QUERIES; i++) sums[i] = 0.0f;
    if (slot != NO_SLOT) {
        WITH_FORMAT(cache.keys.format, score<F>(cache, t, s, slot, part, sums))
    }
#pragma unroll
    for (int i = 0; i < QUERIES; i++) s.partial[(part * QUERIES + i) * PAGE + key] = sums[i];
    __syncthreads();
    for (u32 i = threadIdx.x; i < QUERIES * PAGE; i += THREADS) {
        float sum = s.partial[i];
        for (int n = 1; n < PARTS; n++) sum += s.partial[n * QUERIES * PAGE + i];
        s.p[i] = sum;
    }
    __syncthreads();
}

// Scores become exponentials, and the span's sums move to the new maximum. A warp takes a query.
__device__ __forceinline__ void softmax(const Step &step, const Attention &args, const Tile &t, const Shared &s, u32 page) {
    for (u32 query = threadIdx.x / 32; query < QUERIES; query += THREADS / 32) {
        u32 lane = threadIdx.x % 32;
        u32 position = query < t.queries() ? step.position(t.row + t.row_of(query)) : 0;
        u32 low = first_seen(position, args.window);
        float x[2], before = s.largest[query], largest = before;
        bool seen[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            u32 key = lane + 32 * j, at = page * PAGE + key;
            float sum = s.p[query * PAGE + key];
            sum *= args.scale;
            if (args.softcap != 0.0f) sum = soft_cap_of(sum, args.softcap);
            seen[j] = query < t.queries() && at >= low && at <= position;
            x[j] = seen[j] ? sum : -INFINITE;
            largest = fmaxf(largest, x[j]);
        }
        largest = warp_max(largest);
        float total = 0.0f;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            // A score that is no number stays none, also where no other is larger than nothing.
            float p = x[j] == -INFINITE ? 0.0f : exp_of(x[j] - largest);
            s.p[query * PAGE + lane + 32 * j] = seen[j] ? p : __uint_as_float(UNSEEN);
            total += p;
        }
        total = warp_sum(total);
        float factor = largest == -INFINITE ? 1.0f : exp_of(before - largest);
        __syncwarp();
        if (lane == 0) {
            s.factor[query] = factor;
            s.largest[query] = largest;
            s.total[query] = __fmaf_rn(s.total[query], factor, total);
        }
    }
    __syncthreads();
}
