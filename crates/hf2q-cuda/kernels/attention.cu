// Attention over cached keys and values.
//
// A row's keys are visited in pages of 64 aligned to absolute positions; SPAN pages, aligned too, are summed up from
// nothing and then combined in ascending order. All of that is the row's own: it does not matter which rows and heads
// share a block, nor whether spans are computed one after another in one block or each in its own.
//
// A block takes QUERIES queries that share a KV head: heads of one row, or of several rows side by side. Four threads
// share a key, each a quarter of its components; the sums of values lie in registers, up to DIMS components of a thread.
#include "kv.cuh"

#define SPAN 2
#define PARTS 4
#define THREADS 256
#define DIMS 2

struct Attention {
    Cache cache;
    Rows q, out;
    // Partial results of spans [row][head][spans][components + 4], or none: a block takes all spans of its queries.
    float *spans;
    u32 spans_each;
    u32 heads;
    u32 group;
    // 0: none.
    u32 window;
    float scale;
    // 0: none.
    float softcap;
    u32 kind;
    // Of chunks of rows: in common.cuh.
    u32 chunk_rows;
};

// What threads of a block share.
struct Shared {
    float *q;        // [QUERIES][components]
    float *partial;  // [PARTS][QUERIES][PAGE]
    float *p;        // [QUERIES][PAGE]
    float *all;      // [QUERIES][components]: sums of the spans so far
    float *tile;     // values, 33 floats for each group of 32
    float *key_levels, *value_levels;
    float *largest, *total;          // of a span, by query
    float *all_largest, *all_total;  // of spans so far
    float *factor;
    u32 *slots;
};

__device__ __forceinline__ Shared share(float *memory, u32 width) {
    Shared s;
    s.q = memory;
    s.partial = s.q + QUERIES * width;
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
    s.slots = (u32 *)(s.factor + QUERIES);
    return s;
}

// Queries of a block and the positions that they see.
struct Tile {
    u32 row, at;    // first row of the step, and of the operand
    u32 rows;
    u32 kv_head;
    u32 head, heads; // of each row
    u32 low, high;  // positions that one of the rows sees: low .. high

    __device__ u32 queries() const { return rows * heads; }
    __device__ u32 row_of(u32 query) const { return query / heads; }
    __device__ u32 head_of(u32 query) const { return head + query % heads; }
};

__device__ __forceinline__ u32 first_seen(u32 position, u32 window) {
    return window && position + 1 > window ? position + 1 - window : 0;
}

__device__ __forceinline__ void load_queries(const Attention &args, const Tile &t, const Shared &s, u32 width) {
    u32 n = args.cache.head_dim;
    for (u32 i = threadIdx.x; i < QUERIES * width; i += THREADS) {
        u32 query = i / width, d = i % width;
        bool real = query < t.queries() && d < n;
        s.q[i] = real ? args.q.row(t.at + t.row_of(query))[t.head_of(query) * n + d] : 0.0f;
    }
    if (args.cache.keys.format >= KV_TQ2) rotate(s.q, QUERIES * width, args.cache.keys.block);
    __syncthreads();
}

// Where the keys of a page lie that one of the queries sees.
__device__ __forceinline__ void find_slots(const Step &step, const Attention &args, const Tile &t, const Shared &s, u32 page) {
    if (threadIdx.x < PAGE) {
        u32 position = page * PAGE + threadIdx.x, base = step.tree_base(t.row), slot = NO_SLOT;
        if (position >= t.low && position < t.high) {
            if (position >= base && base <= step.position(t.row)) {
                slot = step.at(step.group(args.group, GROUP_PATHS_AT) + t.row * step.at(STEP_PATH_LEN) + position - base);
            } else {
                u32 tables = step.group(args.group, GROUP_TABLES_AT), pages = step.group(args.group, GROUP_PAGES);
                slot = step.at(tables + step.sequence(t.row) * pages + page) * PAGE + threadIdx.x;
            }
        }
        s.slots[threadIdx.x] = slot;
    }
    __syncthreads();
}

// Dot products of the queries with a quarter of a key.
template <typename F>
__device__ __forceinline__ void score(const Attention &args, const Tile &t, const Shared &s, u32 slot, u32 part, float (&sums)[QUERIES]) {
    const Cache &cache = args.cache;
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
#pragma unroll 1
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

__device__ __forceinline__ void scores(const Attention &args, const Tile &t, const Shared &s) {
    u32 key = threadIdx.x % PAGE, part = threadIdx.x / PAGE, slot = s.slots[key];
    float sums[QUERIES];
#pragma unroll
    for (int i = 0; i < QUERIES; i++) sums[i] = 0.0f;
    if (slot != NO_SLOT) {
        WITH_FORMAT(args.cache.keys.format, score<F>(args, t, s, slot, part, sums))
    }
#pragma unroll
    for (int i = 0; i < QUERIES; i++) s.partial[(part * QUERIES + i) * PAGE + key] = sums[i];
    __syncthreads();
}

// Scores become exponentials, and the span's sums move to the new maximum. A warp takes a query.
__device__ __forceinline__ void softmax(const Step &step, const Attention &args, const Tile &t, const Shared &s, u32 page) {
    for (u32 query = threadIdx.x / 32; query < QUERIES; query += THREADS / 32) {
        u32 lane = threadIdx.x % 32;
        u32 position = query < t.queries() ? step.position(t.row + t.row_of(query)) : 0;
        u32 low = first_seen(position, args.window);
        float x[2], before = s.largest[query], largest = before;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            u32 key = lane + 32 * j, at = page * PAGE + key;
            const float *partial = s.partial + query * PAGE + key;
            float sum = partial[0];
            for (int part = 1; part < PARTS; part++) sum += partial[part * QUERIES * PAGE];
            sum *= args.scale;
            if (args.softcap != 0.0f) sum = soft_cap_of(sum, args.softcap);
            bool seen = query < t.queries() && at >= low && at <= position;
            x[j] = seen ? sum : -INFINITE;
            largest = fmaxf(largest, x[j]);
        }
        largest = warp_max(largest);
        bool none = largest == -INFINITE;
        float total = 0.0f;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float p = none || x[j] == -INFINITE ? 0.0f : exp_of(x[j] - largest);
            s.p[query * PAGE + lane + 32 * j] = p;
            total += p;
        }
        total = warp_sum(total);
        float factor = none ? 1.0f : exp_of(before - largest);
        if (lane == 0) {
            s.factor[query] = factor;
            s.largest[query] = largest;
            s.total[query] = __fmaf_rn(s.total[query], factor, total);
        }
    }
    __syncthreads();
}

// Decodes a group of a position's value into the tile.
template <typename F>
__device__ __forceinline__ void decode(const Attention &args, const Tile &t, const Shared &s, u32 slot, u32 g, float *to) {
    const Cache &cache = args.cache;
    u32 groups = cache.groups(), p = slot % PAGE;
    u32 *block = cache.block_of_values(slot / PAGE, t.kv_head);
    float scale = 1.0f;
    if (cache.values.scales) scale = half_to_float(scales_of(block, cache.values, groups)[g * 32 / cache.values.block * PAGE + p]);
    const u32 *from = block + value_word(F::BITS, groups, g, 0, p);
    constexpr int COUNT = F::PIECE * 32 / F::BITS;
#pragma unroll 1
    for (int first = 0; first < 32; first += COUNT, to += COUNT) {
        u32 words[F::PIECE];
        F::load(from + first * F::BITS / 32 / F::VECTOR * groups * F::VECTOR, groups * F::VECTOR, words);
#pragma unroll
        for (int i = 0; i < COUNT; i++) to[i] = F::value(words, i, s.value_levels) * scale;
    }
}

// Adds the weighted values of a page.
__device__ __forceinline__ void values(const Attention &args, const Tile &t, const Shared &s, float (&sums)[QUERIES][DIMS]) {
    u32 groups = args.cache.groups(), each = min((u32)PAGE, THREADS / groups / 4 * 4);
#pragma unroll
    for (int i = 0; i < QUERIES; i++)
#pragma unroll
        for (int j = 0; j < DIMS; j++) sums[i][j] *= s.factor[i];
    for (u32 first = 0; first < PAGE; first += each) {
        u32 key = threadIdx.x / groups, g = threadIdx.x % groups;
        if (key < each && first + key < PAGE) {
            u32 slot = s.slots[first + key];
            float *to = s.tile + threadIdx.x * 33;
            if (slot == NO_SLOT) {
                for (int i = 0; i < 32; i++) to[i] = 0.0f;
            } else {
                WITH_FORMAT(args.cache.values.format, decode<F>(args, t, s, slot, g, to))
            }
        }
        __syncthreads();
        for (u32 k = 0; k < min(each, PAGE - first); k += 4) {
            float v[4][DIMS];
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int j = 0; j < DIMS; j++) {
                    u32 d = threadIdx.x + j * THREADS;
                    v[n][j] = d < groups * 32 ? s.tile[((k + n) * groups + d / 32) * 33 + d % 32] : 0.0f;
                }
#pragma unroll
            for (int i = 0; i < QUERIES; i++) {
                float4 p = *(const float4 *)(s.p + i * PAGE + first + k);
#pragma unroll
                for (int j = 0; j < DIMS; j++) {
                    if (j * THREADS >= groups * 32) continue;
                    float sum = __fmaf_rn(p.x, v[0][j], sums[i][j]);
                    sum = __fmaf_rn(p.y, v[1][j], sum);
                    sum = __fmaf_rn(p.z, v[2][j], sum);
                    sums[i][j] = __fmaf_rn(p.w, v[3][j], sum);
                }
            }
        }
        __syncthreads();
    }
}

// Largest score and sums of some spans, joined with those of the next.
__device__ __forceinline__ void join_factors(float before, float next, float &a, float &b) {
    float largest = fmaxf(before, next);
    a = before == -INFINITE ? 0.0f : exp_of(before - largest);
    b = exp_of(next - largest);
}
__device__ __forceinline__ float joined(float before, float a, float next, float b) { return __fmaf_rn(before, a, next * b); }

// One span of keys, from nothing.
__device__ __forceinline__ void span(const Step &step, const Attention &args, const Tile &t, const Shared &s, u32 i, float (&sums)[QUERIES][DIMS]) {
    if (threadIdx.x < QUERIES) {
        s.largest[threadIdx.x] = -INFINITE;
        s.total[threadIdx.x] = 0.0f;
    }
#pragma unroll
    for (int q = 0; q < QUERIES; q++)
#pragma unroll
        for (int j = 0; j < DIMS; j++) sums[q][j] = 0.0f;
    u32 first = max(i * SPAN, t.low / PAGE), last = min(i * SPAN + SPAN - 1, (t.high - 1) / PAGE);
    for (u32 page = first; page <= last; page++) {
        find_slots(step, args, t, s, page);
        scores(args, t, s);
        softmax(step, args, t, s, page);
        values(args, t, s, sums);
    }
}

// Quotients of `sums` by `total`, in the basis of values that are not rotated, from shared memory.
__device__ __forceinline__ void write(const Attention &args, float *sums, float total, u32 row, u32 head) {
    u32 n = args.cache.head_dim;
    if (args.cache.values.format >= KV_TQ2) rotate_back(sums, n, args.cache.values.block);
    float inverse = __fdiv_rn(1.0f, total), *out = args.out.row(row) + head * n;
    for (u32 d = threadIdx.x; d < n; d += blockDim.x) out[d] = sums[d] * inverse;
}

// Joins a span with those before.
__device__ __forceinline__ void join_all(const Shared &s, u32 width, float (&sums)[QUERIES][DIMS]) {
#pragma unroll
    for (int q = 0; q < QUERIES; q++) {
        if (s.largest[q] == -INFINITE) continue;
        float a, b;
        join_factors(s.all_largest[q], s.largest[q], a, b);
#pragma unroll
        for (int j = 0; j < DIMS; j++) {
            u32 d = threadIdx.x + j * THREADS;
            if (d < width) s.all[q * width + d] = joined(s.all[q * width + d], a, sums[q][j], b);
        }
    }
    __syncthreads();
    u32 q = threadIdx.x;
    if (q < QUERIES && s.largest[q] != -INFINITE) {
        float a, b;
        join_factors(s.all_largest[q], s.largest[q], a, b);
        s.all_total[q] = joined(s.all_total[q], a, s.total[q], b);
        s.all_largest[q] = fmaxf(s.all_largest[q], s.largest[q]);
    }
    __syncthreads();
}

// All spans of a tile, one after another.
__device__ __forceinline__ void all_spans(const Step &step, const Attention &args, const Tile &t, const Shared &s, u32 width) {
    for (u32 i = threadIdx.x; i < QUERIES * width; i += THREADS) s.all[i] = 0.0f;
    if (threadIdx.x < QUERIES) {
        s.all_largest[threadIdx.x] = -INFINITE;
        s.all_total[threadIdx.x] = 0.0f;
    }
    for (u32 i = t.low / (SPAN * PAGE); i <= (t.high - 1) / (SPAN * PAGE); i++) {
        float sums[QUERIES][DIMS];
        span(step, args, t, s, i, sums);
        join_all(s, width, sums);
    }
    for (u32 q = 0; q < t.queries(); q++)
        write(args, s.all + q * width, s.all_total[q], t.at + t.row_of(q), t.head_of(q));
}

// One span of a tile, kept for `join`.
__device__ __forceinline__ void one_span(const Step &step, const Attention &args, const Tile &t, const Shared &s, u32 width, u32 i) {
    float sums[QUERIES][DIMS];
    span(step, args, t, s, i, sums);
#pragma unroll
    for (int q = 0; q < QUERIES; q++) {
        if (q >= t.queries()) continue;
        u32 row = t.at + t.row_of(q);
        u32 low = first_seen(step.position(t.row + t.row_of(q)), args.window) / (SPAN * PAGE);
        if (i < low || i - low >= args.spans_each) continue;
        float *to = args.spans + ((u64)(row * args.heads + t.head_of(q)) * args.spans_each + i - low) * (width + 4);
#pragma unroll
        for (int j = 0; j < DIMS; j++) {
            u32 d = threadIdx.x + j * THREADS;
            if (d < width) to[4 + d] = sums[q][j];
        }
        if (threadIdx.x == 0) {
            to[0] = s.largest[q];
            to[1] = s.total[q];
        }
    }
    __syncthreads();
}

// Tile `n` of the step, if there is one.
__device__ __forceinline__ bool find(const Step &step, const Attention &args, u32 n, Tile &t) {
    u32 sharing = args.heads / args.cache.kv_heads;
    u32 heads = min(sharing, (u32)QUERIES), rows = QUERIES / heads, pieces = (sharing + heads - 1) / heads;
    t.kv_head = n % args.cache.kv_heads;
    n /= args.cache.kv_heads;
    u32 piece = n % pieces;
    n /= pieces;
    u32 per_chunk = (args.chunk_rows + rows - 1) / rows, first = n % per_chunk * rows;
    u32 chunk = step.at(args.kind == ROWS_OF_STEP ? STEP_CHUNKS_AT : STEP_WANTED_CHUNKS_AT) + n / per_chunk * 3;
    u32 count = step.at(chunk + 2);
    if (first >= count) return false;
    t.row = step.at(chunk) + first;
    t.at = step.at(chunk + 1) + first;
    t.rows = min(rows, count - first);
    t.head = t.kv_head * sharing + piece * heads;
    t.heads = min(heads, sharing - piece * heads);
    t.low = first_seen(step.position(t.row), args.window);
    t.high = step.position(t.row + t.rows - 1) + 1;
    return true;
}

__device__ __forceinline__ void load_levels(const Vectors &v, float *to) {
    if (v.format >= KV_TQ2)
        for (u32 i = threadIdx.x; i < 1u << v.bits; i += THREADS) to[i] = v.levels[i];
}

extern "C" __global__ void __launch_bounds__(THREADS) attention(const Step step, const Attention args) {
    extern __shared__ __align__(16) float memory[];
    u32 width = args.cache.groups() * 32;
    Shared s = share(memory, width);
    load_levels(args.cache.keys, s.key_levels);
    load_levels(args.cache.values, s.value_levels);
    u32 sharing = args.heads / args.cache.kv_heads, heads = min(sharing, (u32)QUERIES);
    u32 rows = QUERIES / heads, per_chunk = (args.chunk_rows + rows - 1) / rows;
    u32 chunks = step.at(args.kind == ROWS_OF_STEP ? STEP_CHUNKS : STEP_WANTED_CHUNKS);
    u32 tiles = chunks * per_chunk * args.cache.kv_heads * ((sharing + heads - 1) / heads);
    u32 spans = args.spans ? step.group(args.group, args.kind == ROWS_OF_STEP ? GROUP_SPANS : GROUP_WANTED_SPANS) : 1;
    for (u32 n = blockIdx.x; n < tiles * spans; n += gridDim.x) {
        Tile t;
        if (!find(step, args, n % tiles, t)) continue;
        u32 i = t.low / (SPAN * PAGE) + n / tiles;
        if (args.spans && i > (t.high - 1) / (SPAN * PAGE)) continue;
        __syncthreads();
        load_queries(args, t, s, width);
        if (args.spans) one_span(step, args, t, s, width, i);
        else all_spans(step, args, t, s, width);
    }
}

// Joins the spans of a row and head: grid.x rows, grid.y heads.
extern "C" __global__ void __launch_bounds__(THREADS) join(const Step step, const Attention args) {
    __shared__ float sums[DIMS * THREADS];
    u32 r = blockIdx.x, head = blockIdx.y, width = args.cache.groups() * 32;
    if (r >= step.count(args.kind)) return;
    u32 position = step.position(step.row(args.kind, r)), low = first_seen(position, args.window) / (SPAN * PAGE);
    u32 count = position / (SPAN * PAGE) - low + 1;
    const float *from = args.spans + (u64)(r * args.heads + head) * args.spans_each * (width + 4);
    float all[DIMS], largest = -INFINITE, total = 0.0f;
#pragma unroll
    for (int j = 0; j < DIMS; j++) all[j] = 0.0f;
    for (u32 i = 0; i < count; i++, from += width + 4) {
        float next = from[0];
        if (next == -INFINITE) continue;
        float a, b;
        join_factors(largest, next, a, b);
        total = joined(total, a, from[1], b);
#pragma unroll
        for (int j = 0; j < DIMS; j++) {
            u32 d = threadIdx.x + j * THREADS;
            if (d < width) all[j] = joined(all[j], a, from[4 + d], b);
        }
        largest = fmaxf(largest, next);
    }
#pragma unroll
    for (int j = 0; j < DIMS; j++) sums[threadIdx.x + j * THREADS] = all[j];
    __syncthreads();
    write(args, sums, total, r, head);
}
