// What blocks of attention_mma.cu share, and how keys, values and queries come there.
//
// WIDTH: components of a head. FORMED: keys are formed of values. A formed key's components that turn come first, in a
// tile of their own; of the others, weights are multiplied into the queries, and values are the keys.
#pragma once
#include "attention.cuh"
#include "attention_mma.cuh"

enum : int {
    THREADS = WIDTH == 512 ? 512 : 256,
    CHUNKS = WIDTH / 8,                  // 16 bytes each
    PITCH = WIDTH + 8,                   // of a value or a query: neighbours lie in different banks
    SCORES = PAGE + 4,                   // floats of a query's scores, then halves of its exponentials
    SETS = QUERIES / 8,
    WARPS = THREADS / 32,
    SLICES = WIDTH / 16 < WARPS ? WIDTH / 16 : WARPS,  // warps that add up values
    OWN = WIDTH / 16 / SLICES,           // 16 components each of a warp
    STAGES = FORMED && QUERIES == 8 ? 2 : 1, // tiles of values
    TURNING = WIDTH / 4,                 // most components of a formed key that turn
};

// Exponentials are multiplied with it, so that their low halves are normal numbers; totals are, too.
#define LARGE 16384.0f

struct Shared {
    u16 *keys;    // [chunk][PAGE][8]; FORMED: components that turn, high halves, then low ones
    u16 *values;  // [STAGES][PAGE][PITCH], chunks in the order of the cache
    u16 *high, *low;  // [QUERIES][PITCH]: queries, chunks in the order of the scores
    float *scores;    // [QUERIES][SCORES]
    float *largest, *total, *all_largest, *all_total, *factor, *scale;
    float2 *turns, *joins;
    float **places;  // where results of a query go
    u32 *slots;   // [2][PAGE]
    u32 *order;   // chunks of values that do not turn
};

__device__ __forceinline__ Shared share(u8 *memory) {
    Shared s;
    s.values = (u16 *)memory;
    s.keys = s.values + STAGES * PAGE * PITCH;
    s.high = s.keys + (FORMED ? 2 * TURNING : WIDTH) * PAGE;
    s.low = s.high + QUERIES * PITCH;
    s.scores = (float *)(s.low + QUERIES * PITCH);
    s.largest = s.scores + QUERIES * SCORES;
    s.total = s.largest + QUERIES;
    s.all_largest = s.total + QUERIES;
    s.all_total = s.all_largest + QUERIES;
    s.factor = s.all_total + QUERIES;
    s.scale = s.factor + QUERIES;
    s.turns = (float2 *)(s.scale + QUERIES);
    s.joins = s.turns + TURNING / 2;
    s.places = (float **)(s.joins + QUERIES);
    s.slots = (u32 *)(s.places + QUERIES);
    s.order = s.slots + 2 * PAGE;
    return s;
}

// First component of chunk `j` of a value as the cache has them.
__device__ __forceinline__ u32 component_of(u32 j) { return j % (WIDTH / 32) * 32 + j / (WIDTH / 32) * 8; }

// Whether components from `d` on turn.
__device__ __forceinline__ bool turns(const Attention &args, u32 d) {
    if (args.adjacent) return d < 2 * args.turning;
    return d < args.turning || (d >= args.pairs && d < args.pairs + args.turning);
}

// First component of the `n`th chunk of those that turn.
__device__ __forceinline__ u32 turning_component(const Attention &args, u32 n) {
    u32 d = 8 * n;
    return args.adjacent || d < args.turning ? d : args.pairs + d - args.turning;
}

// Lists the chunks that do not turn. One thread.
__device__ __forceinline__ void list_chunks(const Attention &args, const Shared &s) {
    u32 n = 0;
    for (u32 j = 0; j < CHUNKS; j++)
        if (!turns(args, component_of(j))) s.order[n++] = j;
}

// Chunk `n` of the order of scores: its first component, and whether it turns.
__device__ __forceinline__ u32 scored_component(const Attention &args, const Shared &s, u32 n) {
    if (!FORMED) return 8 * n;
    u32 turning = args.turning / 4;
    return n < turning ? turning_component(args, n) : component_of(s.order[n - turning]);
}

// Component `at` of a query in the order of scores.
__device__ __forceinline__ float query_component(const Attention &args, const Shared &s, const float *query, u32 at) {
    u32 d = scored_component(args, s, at / 8) + at % 8;
    float x = query[d];
    return FORMED && args.key_weights && at / 8 >= args.turning / 4 ? x * __ldg(args.key_weights + d) : x;
}

// Queries, brought between 2^13 and 2^14 and split. A warp takes a query.
__device__ __forceinline__ void load_queries(const Attention &args, const Tile &t, const Shared &s) {
    u32 lane = threadIdx.x % 32;
#pragma unroll 1
    for (u32 query = threadIdx.x / 32; query < QUERIES; query += THREADS / 32) {
        bool real = query < t.queries();
        const float *from = args.q.row(t.at + (real ? t.row_of(query) : 0)) + (u64)t.head_of(real ? query : 0) * WIDTH;
        float largest = 0.0f;
#pragma unroll 4
        for (u32 at = lane; at < WIDTH; at += 32) largest = fmaxf(largest, fabsf(query_component(args, s, from, at)));
        u32 exponent = __float_as_uint(warp_max(largest)) >> 23;
        // 2^(13 - e) for a largest of 2^e; what is zero, tiny or no number stays as it is.
        bool usual = exponent > 40 && exponent < 250;
        float factor = usual ? __uint_as_float((254u + 13u - exponent) << 23) : 1.0f;
#pragma unroll 2
        for (u32 at = lane; at < WIDTH; at += 32) {
            float x = real ? query_component(args, s, from, at) * factor : 0.0f;
            split(x, s.high[query * PITCH + at], s.low[query * PITCH + at]);
        }
        if (lane == 0) s.scale[query] = usual ? __uint_as_float((exponent - 13u) << 23) : 1.0f;
    }
}

// Where the positions of a page lie that one of the queries sees.
__device__ __forceinline__ void find_slots(const Step &step, const Attention &args, const Tile &t, u32 *slots, u32 page) {
    if (threadIdx.x >= PAGE) return;
    u32 group = args.sources[0].group, position = page * PAGE + threadIdx.x, base = step.tree_base(t.row), slot = NO_SLOT;
    if (position >= t.low && position < t.high) {
        if (position >= base && base <= step.position(t.row)) {
            slot = step.at(step.group(group, GROUP_PATHS_AT) + t.row * step.at(STEP_PATH_LEN) + position - base);
        } else {
            u32 tables = step.group(group, GROUP_TABLES_AT), pages = step.group(group, GROUP_PAGES);
            slot = step.at(tables + step.sequence(t.row) * pages + page) * PAGE + threadIdx.x;
        }
    }
    slots[threadIdx.x] = slot;
}

__device__ __forceinline__ void fetch_keys(const Attention &args, const Tile &t, const Shared &s, const u32 *slots) {
    const Cache &cache = args.sources[0].cache;
#pragma unroll 2
    for (u32 i = threadIdx.x; i < PAGE * CHUNKS; i += THREADS) {
        u32 slot = slots[i % PAGE];
        bool real = slot != NO_SLOT;
        const u32 *block = cache.block_of_keys(real ? slot / PAGE : 0, t.kv_head);
        copy16(s.keys + 8 * i, block + (i / PAGE * PAGE + slot % PAGE) * 4, real);
    }
}

// Values of positions `low` to `high` of a page; zeros for all others.
__device__ __forceinline__ void fetch_values(const Attention &args, const Tile &t, u16 *values, const u32 *slots, u32 low, u32 high) {
    const Cache &cache = args.sources[0].cache;
#pragma unroll 2
    for (u32 i = threadIdx.x; i < PAGE * CHUNKS; i += THREADS) {
        u32 p = i / CHUNKS, j = i % CHUNKS, slot = slots[p];
        bool real = slot != NO_SLOT && p >= low && p < high;
        const u32 *block = cache.block_of_values(real ? slot / PAGE : 0, t.kv_head);
        copy16(values + p * PITCH + 8 * j, block + (slot % PAGE * CHUNKS + j) * 4, real);
    }
}

#if FORMED
// Cosines and sines of the pairs at the start of a page, in halves of a turn between -1 and 1.
__device__ __forceinline__ void turn_page(const Attention &args, const Shared &s, u32 page) {
    if (threadIdx.x >= args.turning) return;
    double turns = (double)(page * PAGE) * args.frequencies[threadIdx.x] * 0.31830988618379067;
    float n, c;
    sincospif((float)(turns - 2.0 * rint(turns * 0.5)), &n, &c);
    s.turns[threadIdx.x] = make_float2(c, n);
}

// Component `d` of a value, weighted as keys are.
__device__ __forceinline__ float key_component(const Attention &args, const u16 *value, u32 d) {
    u32 chunk = d % 32 / 8 * (WIDTH / 32) + d / 32;
    float x = half_to_float(value[8 * chunk + d % 8]);
    return args.key_weights ? x * __ldg(args.key_weights + d) : x;
}

__device__ __forceinline__ void store_key(const Shared &s, u32 p, u32 at, float x) {
    u16 *to = s.keys + (at / 8 * PAGE + p) * 8 + at % 8;
    split(x, to[0], to[TURNING * PAGE]);
}

// Forms what turns of a page's keys.
__device__ __forceinline__ void form_keys(const Attention &args, const Shared &s, const u16 *values) {
    u32 turning = args.turning;
#pragma unroll 4
    for (u32 i = threadIdx.x; i < PAGE * turning; i += THREADS) {
        u32 p = i / turning, pair = i % turning;
        float2 page = s.turns[pair], offset = __ldg(args.offsets + p * args.pairs + pair);
        float c = __fmaf_rn(page.x, offset.x, -(page.y * offset.y)), n = __fmaf_rn(page.y, offset.x, page.x * offset.y);
        u32 first = args.adjacent ? 2 * pair : pair, second = args.adjacent ? 2 * pair + 1 : pair + args.pairs;
        float a = key_component(args, values + p * PITCH, first), b = key_component(args, values + p * PITCH, second);
        store_key(s, p, first, a * c - b * n);
        store_key(s, p, args.adjacent ? second : turning + pair, a * n + b * c);
    }
}
#endif
