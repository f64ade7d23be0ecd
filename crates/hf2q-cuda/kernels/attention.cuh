// What kernels of attention share: their arguments, which queries a block takes, and how partial results are joined.
//
// A row's keys are visited in pages of 64 aligned to absolute positions; spans of pages, aligned too, are summed up from
// nothing and then combined in ascending order. All of that is the row's own: it does not matter which rows and heads
// share a block, nor whether spans are computed one after another in one block or each in its own.
//
// A block takes QUERIES queries that share a KV head: heads of one row, or of several rows side by side.
#pragma once
#include "kv.cuh"

// Where keys and values are read: `SourceArgs` of attention.rs.
struct Source {
    Cache cache;
    u32 group;
    // Of the second source: a row reads its own page and so many less one before it there; 0: there is none.
    u32 pages;
};

struct Attention {
    Source sources[2];
    Rows q, out;
    // Partial results of spans [row][head][spans][components + 4], or none: a block takes all spans of its queries.
    float *spans;
    u32 spans_each;
    u32 heads;
    // 0: none.
    u32 window;
    float scale;
    // 0: none.
    float softcap;
    u32 kind;
    // Pages of a span.
    u32 span;
    // How keys are formed where only values are stored: weights of each component, or none; pairs that turn, whether
    // they lie side by side, their angle per position, and [PAGE][pairs] cosines and sines of positions within a page.
    const float *key_weights;
    const double *frequencies;
    const float2 *offsets;
    u32 pairs;
    u32 adjacent;
    float magnitude;
    // How many of the pairs turn: the first ones.
    u32 turning;
    // What blocks without queries bring near.
    Region ahead;

    __device__ u32 width() const { return sources[0].cache.groups() * 32; }
};

// Queries of a block and the positions that they see.
struct Tile {
    u32 row, at;    // first row of the step, and of the operand
    u32 rows;
    u32 kv_head;
    u32 head, heads; // of each row
    u32 low, high;  // positions that one of the rows sees: low .. high
    u32 border;     // first page that is read from the second source

    __device__ u32 queries() const { return rows * heads; }
    __device__ u32 row_of(u32 query) const { return query / heads; }
    __device__ u32 head_of(u32 query) const { return head + query % heads; }
};

__device__ __forceinline__ u32 first_seen(u32 position, u32 window) {
    return window && position + 1 > window ? position + 1 - window : 0;
}

// The first page, not before `low`, that a row at `position` reads from the second source; behind its own where there is
// none.
__device__ __forceinline__ u32 border_of(const Attention &args, u32 position, u32 low) {
    u32 own = position / PAGE, pages = args.sources[1].pages;
    return pages == 0 ? own + 1 : max(low, own + 1 > pages ? own + 1 - pages : 0);
}

// Tile `n` of the step, if there is one.
__device__ __forceinline__ bool find(const Step &step, const Attention &args, u32 n, Tile &t) {
    u32 kv_heads = args.sources[0].cache.kv_heads, sharing = args.heads / kv_heads;
    u32 heads = min(sharing, (u32)QUERIES), rows = QUERIES / heads, pieces = (sharing + heads - 1) / heads;
    t.kv_head = n % kv_heads;
    n /= kv_heads;
    u32 piece = n % pieces;
    n /= pieces;
    u32 per_chunk = (step.chunk_rows(args.kind) + rows - 1) / rows, first = n % per_chunk * rows;
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
    // Rows of a chunk are of one page.
    t.border = border_of(args, t.high - 1, t.low / PAGE);
    return true;
}

// Tiles of the step: those that chunks with fewer rows have not are none.
__device__ __forceinline__ u32 tiles_of(const Step &step, const Attention &args) {
    u32 kv_heads = args.sources[0].cache.kv_heads, sharing = args.heads / kv_heads, heads = min(sharing, (u32)QUERIES);
    u32 rows = QUERIES / heads, per_chunk = (step.chunk_rows(args.kind) + rows - 1) / rows;
    u32 chunks = step.at(args.kind == ROWS_OF_STEP ? STEP_CHUNKS : STEP_WANTED_CHUNKS);
    return chunks * per_chunk * kv_heads * ((sharing + heads - 1) / heads);
}

// Largest score and sums of some spans, joined with those of the next.
__device__ __forceinline__ void join_factors(float before, float next, float &a, float &b) {
    float largest = fmaxf(before, next);
    a = before == -INFINITE ? 0.0f : exp_of(before - largest);
    b = next == -INFINITE ? 0.0f : exp_of(next - largest);
}
__device__ __forceinline__ float joined(float before, float a, float next, float b) { return __fmaf_rn(before, a, next * b); }

// Whether one of the rows sees a key of a page that another does not.
__device__ __forceinline__ bool is_mixed(const Attention &args, const Tile &t, u32 page) {
    u32 low = first_seen(t.high - 1, args.window), high = t.high - t.rows + 1;
    return t.rows > 1 && (page * PAGE < low || (page + 1) * PAGE > high);
}
