// Attention over keys and values of 16-bit floats with tensor cores.
//
// Keys and values of a page are copied to shared memory as they are; queries, exponentials and keys that are formed of
// values are split into two halves. A warp scores 16 keys (A) with queries (B), and adds up its components of values
// (A) weighted by exponentials (B). Accumulators: even steps of 16 components, odd steps, and low halves, added in this order.
#include "attention_load.cuh"

// Adds the product of 16 keys and 8 queries over two chunks. LOW: keys have low halves, too.
template <int N, bool LOW> __device__ __forceinline__ void score_step(float (&sums)[3][4], u32 keys, u32 queries) {
    u32 a[4], b[4];
    load4(a, keys);
    load4(b, queries);
    multiply(sums[N], a, b[0], b[1]);
    multiply(sums[2], a, b[2], b[3]);
    if constexpr (LOW) {
        load4(a, keys + TURNING * PAGE * 2);
        multiply(sums[2], a, b[0], b[1]);
    }
}

// Scores of a page, unscaled.
__device__ __forceinline__ void scores(const Attention &args, const Shared &s, const u16 *values) {
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, matrix = lane / 8;
    u32 key = warp % 4 * 16 + matrix % 2 * 8 + lane % 8;
    u32 turning = FORMED ? args.turning / 4 : 0;
    constexpr int EACH = (SETS * 4 + WARPS - 1) / WARPS;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        u32 set = warp / 4 * EACH + e;
        if (set >= SETS) break;
        float sums[3][4];
#pragma unroll
        for (int i = 0; i < 12; i++) sums[i / 4][i % 4] = 0.0f;
        // Matrices of queries: two chunks of high halves, two of low ones.
        u32 queries = shared_address((matrix / 2 ? s.low : s.high) + (8 * set + lane % 8) * PITCH + matrix % 2 * 8);
        u32 keys = shared_address(s.keys + (matrix / 2 * PAGE + key) * 8);
        u32 formed = FORMED ? turning : CHUNKS;
#pragma unroll 2
        for (u32 n = 0; n < formed; n += 4) {
            score_step<0, FORMED>(sums, keys + n * PAGE * 16, queries + n * 16);
            if (n + 2 < formed) score_step<1, FORMED>(sums, keys + (n + 2) * PAGE * 16, queries + (n + 2) * 16);
        }
        if (FORMED) {
            u32 from = shared_address(values + key * PITCH);
            const u32 *order = s.order + matrix / 2 - turning;
#pragma unroll 2
            for (u32 n = turning; n < CHUNKS; n += 4) {
                score_step<0, false>(sums, from + order[n] * 16, queries + n * 16);
                if (n + 2 < CHUNKS) score_step<1, false>(sums, from + order[n + 2] * 16, queries + (n + 2) * 16);
            }
        }
        u32 at = warp % 4 * 16 + lane / 4, query = 8 * set + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 4; i++)
            s.scores[(query + i % 2) * SCORES + at + i / 2 * 8] = sums[0][i] + sums[1][i] + sums[2][i];
    }
}

// Scores become exponentials, and the span's sums move to the new maximum. A warp takes a query.
__device__ __forceinline__ void softmax(const Step &step, const Attention &args, const Tile &t, const Shared &s, u32 page) {
    u32 lane = threadIdx.x % 32;
#pragma unroll 1
    for (u32 query = threadIdx.x / 32; query < QUERIES; query += THREADS / 32) {
        bool real = query < t.queries();
        u32 position = real ? step.position(t.row + t.row_of(query)) : 0, low = first_seen(position, args.window);
        float x[2], before = s.largest[query], largest = before, *row = s.scores + query * SCORES;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            u32 at = page * PAGE + lane + 32 * j;
            float sum = row[lane + 32 * j] * s.scale[query] * args.scale;
            if (args.softcap != 0.0f) sum = soft_cap_of(sum, args.softcap);
            x[j] = real && at >= low && at <= position ? sum : -INFINITE;
            largest = fmaxf(largest, x[j]);
        }
        largest = warp_max(largest);
        float total = 0.0f;
        u16 *high = (u16 *)row, *rest = high + PAGE;
        __syncwarp();
#pragma unroll
        for (int j = 0; j < 2; j++) {
            // A score that is no number stays none, also where no other is larger than nothing.
            float p = x[j] == -INFINITE ? 0.0f : exp_of(x[j] - largest) * LARGE;
            split(p, high[lane + 32 * j], rest[lane + 32 * j]);
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
}

typedef float Sums[OWN][SETS][4];

// Adds the weighted values of a page to sums that are at its maximum already. ONE: of queries `first` to `end` only.
template <bool ONE>
__device__ __forceinline__ void add_values(const Shared &s, const u16 *values, Sums &sums, u32 first, u32 end) {
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, matrix = lane / 8;
    if (warp >= SLICES) return;
#pragma unroll(ONE ? 1 : 2)
    for (int k = 0; k < PAGE / 16; k++) {
        u32 a[OWN][4];
        u32 from = shared_address(values + (16 * k + matrix / 2 * 8 + lane % 8) * PITCH + warp * OWN * 16 + matrix % 2 * 8);
#pragma unroll
        for (int o = 0; o < OWN; o++) load4_turned(a[o], from + o * 32);
#pragma unroll
        for (int n = 0; n < SETS; n++) {
            u32 b[4];
            load4(b, shared_address(s.scores + (8 * n + lane % 8) * SCORES) + 32 * k + matrix / 2 * 2 * PAGE + matrix % 2 * 16);
#pragma unroll
            for (int o = 0; o < OWN; o++) {
                float own[4];
#pragma unroll
                for (int i = 0; i < 4; i++) own[i] = sums[o][n][i];
                multiply(own, a[o], b[0], b[1]);
                multiply(own, a[o], b[2], b[3]);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    u32 query = 8 * n + lane % 4 * 2 + i % 2;
                    if (!ONE || (query >= first && query < end)) sums[o][n][i] = own[i];
                }
            }
        }
    }
}

// Whether one of a page's values is no number.
__device__ __forceinline__ bool has_other(const u16 *values) {
    bool other = false;
    for (u32 i = threadIdx.x; i < PAGE * WIDTH; i += THREADS)
        other |= (values[i / WIDTH * PITCH + i % WIDTH] & 0x7c00) == 0x7c00;
    return __syncthreads_or(other);
}

// A page of which rows see different parts, with values that are no numbers: row by row, without what the row does not see.
__device__ __forceinline__ void add_row_by_row(const Step &step, const Attention &args, const Tile &t, const Shared &s, u16 *values,
                                               const u32 *slots, u32 page, Sums &sums) {
    for (u32 r = 0; r < t.rows; r++) {
        u32 position = step.position(t.row + r), low = first_seen(position, args.window), base = page * PAGE;
        __syncthreads();
        wait_for_copies<0>();
        fetch_values(args, t, values, slots, low > base ? low - base : 0, position + 1 > base ? position + 1 - base : 0);
        end_copies();
        wait_for_copies<0>();
        __syncthreads();
        add_values<true>(s, values, sums, r * t.heads, (r + 1) * t.heads);
    }
}

__device__ __forceinline__ void move_sums(const Shared &s, Sums &sums) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < SETS; n++) {
        float2 factor = *(const float2 *)(s.factor + 8 * n + lane % 4 * 2);
#pragma unroll
        for (int o = 0; o < OWN; o++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[o][n][i] *= i % 2 ? factor.y : factor.x;
    }
}

// Queues the copies of a page: keys and values are two groups. Its slots are known.
__device__ __forceinline__ void fetch_formed(const Attention &args, const Tile &t, const Shared &s, u32 page) {
    fetch_values(args, t, s.values + page % STAGES * PAGE * PITCH, s.slots + page % 2 * PAGE, 0, PAGE);
    end_copies();
}

// A page whose copies are queued; those of the next, which is not behind `last`, are queued meanwhile.
__device__ __forceinline__ void add_page(const Step &step, const Attention &args, const Tile &t, const Shared &s, u32 page, u32 last, Sums &sums) {
    u16 *values = s.values + page % STAGES * PAGE * PITCH;
    u32 *slots = s.slots + page % 2 * PAGE, *next = s.slots + (page + 1) % 2 * PAGE;
#if FORMED
    turn_page(args, s, page);
#endif
    if (page < last) find_slots(step, args, t, next, page + 1);
    if (FORMED && STAGES == 2) {
        __syncthreads();
        if (page < last) fetch_formed(args, t, s, page + 1);
        else end_copies();
        wait_for_copies<1>();
    } else if (FORMED) {
        wait_for_copies<0>();
    } else {
        wait_for_copies<1>();
    }
    __syncthreads();
#if FORMED
    form_keys(args, s, values);
    __syncthreads();
#endif
    scores(args, s, values);
    __syncthreads();
    if (!FORMED) {
        if (page < last) fetch_keys(args, t, s, next);
        end_copies();
    }
    softmax(step, args, t, s, page);
    if (!FORMED) wait_for_copies<1>();
    __syncthreads();
    move_sums(s, sums);
    if (is_mixed(args, t, page) && has_other(values)) add_row_by_row(step, args, t, s, values, slots, page, sums);
    else add_values<false>(s, values, sums, 0, 0);
    __syncthreads();
    if (STAGES == 1) {
        if (page < last) fetch_values(args, t, s.values, next, 0, PAGE);
        end_copies();
    }
}

// Queues the copies of the first page.
__device__ __forceinline__ void begin_pages(const Step &step, const Attention &args, const Tile &t, const Shared &s, u32 page) {
    wait_for_copies<0>();
    find_slots(step, args, t, s.slots + page % 2 * PAGE, page);
    // So far only the step's numbers were read, which no kernel writes.
    wait_for_inputs();
    __syncthreads();
    if (!FORMED) {
        fetch_keys(args, t, s, s.slots + page % 2 * PAGE);
        end_copies();
    }
    fetch_formed(args, t, s, page);
}

__device__ __forceinline__ void clear(const Shared &s, Sums &sums) {
    if (threadIdx.x < QUERIES) s.largest[threadIdx.x] = -INFINITE, s.total[threadIdx.x] = 0.0f;
#pragma unroll
    for (int i = 0; i < OWN * SETS * 4; i++) sums[i / (SETS * 4)][i / 4 % SETS][i % 4] = 0.0f;
}

// Whether a query sees nothing of a span. Where a score is no number, the sum of exponentials is none.
__device__ __forceinline__ bool is_empty(const Shared &s, u32 q) { return s.largest[q] == -INFINITE && s.total[q] == 0.0f; }

// Brings sums to the place of values, [QUERIES][PITCH], which are not read any more.
__device__ __forceinline__ float *show(const Shared &s, const Sums &sums) {
    float *shown = (float *)s.values;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();
    if (warp < SLICES) {
#pragma unroll
        for (int n = 0; n < SETS; n++)
#pragma unroll
            for (int o = 0; o < OWN; o++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    u32 d = component_of((warp * OWN + o) * 2 + i / 2) + lane / 4;
                    shown[(8 * n + lane % 4 * 2 + i % 2) * PITCH + d] = sums[o][n][i];
                }
    }
    __syncthreads();
    return shown;
}

// Joins a span with those before.
__device__ __forceinline__ void join_all(const Shared &s, const Sums &sums, Sums &all) {
    u32 lane = threadIdx.x % 32, own = threadIdx.x;
    if (own < QUERIES) {
        float2 factors = make_float2(1.0f, -1.0f);
        if (!is_empty(s, own)) {
            join_factors(s.all_largest[own], s.largest[own], factors.x, factors.y);
            s.all_total[own] = joined(s.all_total[own], factors.x, s.total[own], factors.y);
            s.all_largest[own] = fmaxf(s.all_largest[own], s.largest[own]);
        }
        s.joins[own] = factors;
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < SETS; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            float2 factors = s.joins[8 * n + lane % 4 * 2 + c];
            if (factors.y < 0.0f) continue;
#pragma unroll
            for (int o = 0; o < OWN; o++)
#pragma unroll
                for (int i = c; i < 4; i += 2) all[o][n][i] = joined(all[o][n][i], factors.x, sums[o][n][i], factors.y);
        }
    __syncthreads();
}

// Where a query's sums of span `i` are kept for `join_spans`, behind its largest score and total; null: it sees nothing of it.
__device__ __forceinline__ float *place_of(const Step &step, const Attention &args, const Tile &t, u32 i, u32 q) {
    u32 row = t.at + t.row_of(q), seen = first_seen(step.position(t.row + t.row_of(q)), args.window) / PAGE / args.span;
    if (i < seen || i - seen >= args.spans_each) return nullptr;
    return args.spans + ((u64)(row * args.heads + t.head_of(q)) * args.spans_each + i - seen) * (WIDTH + 4);
}

// Writes results, or what is kept of span `i`.
__device__ __forceinline__ void write(const Step &step, const Attention &args, const Tile &t, const Shared &s, u32 i, const Sums &sums) {
    u32 own = threadIdx.x;
    if (own < t.queries()) {
        float *to = args.out.row(t.at + t.row_of(own)) + (u64)t.head_of(own) * WIDTH;
        if (args.spans) {
            to = place_of(step, args, t, i, own);
            if (to) to[0] = s.largest[own], to[1] = s.total[own], to += 4;
        }
        s.places[own] = to;
        s.factor[own] = args.spans ? 1.0f : __fdiv_rn(1.0f, s.all_total[own]);
    }
    const float *shown = show(s, sums);
#pragma unroll 1
    for (u32 q = threadIdx.x / 32; q < t.queries(); q += THREADS / 32) {
        float *to = s.places[q], factor = s.factor[q];
        if (!to) continue;
#pragma unroll 4
        for (u32 d = threadIdx.x % 32; d < WIDTH; d += 32) to[d] = shown[q * PITCH + d] * factor;
    }
}

// A tile: all spans one after another, or the one that is `k` behind the first that it sees, to be joined later. `again`: it is
// that of the call before.
__device__ __forceinline__ void run(const Step &step, const Attention &args, const Tile &t, const Shared &s, u32 k, bool again) {
    u32 first = t.low / PAGE, last = (t.high - 1) / PAGE, i = first / args.span + k;
    if (args.spans) {
        if (i * args.span > last) return;
        first = max(first, i * args.span), last = min(last, (i + 1) * args.span - 1);
    }
    Sums all, sums;
    clear(s, all);
    clear(s, sums);
    if (threadIdx.x < QUERIES) s.all_largest[threadIdx.x] = -INFINITE, s.all_total[threadIdx.x] = 0.0f;
    begin_pages(step, args, t, s, first);
    if (!again) load_queries(args, t, s);
#pragma unroll 1
    for (u32 page = first; page <= last; page++) {
        add_page(step, args, t, s, page, last, sums);
        if (args.spans || (page < last && (page + 1) % args.span)) continue;
        join_all(s, sums, all);
        clear(s, sums);
    }
    if (args.spans) {
#pragma unroll
        for (int n = 0; n < OWN * SETS * 4; n++) all[n / (SETS * 4)][n / 4 % SETS][n % 4] = sums[n / (SETS * 4)][n / 4 % SETS][n % 4];
    }
    write(step, args, t, s, i, all);
}

extern "C" __global__ void __launch_bounds__(THREADS, WIDTH == 512 ? 1 : 2)
attention_mma(const Step step, const __grid_constant__ Attention args) {
    start_next();
    extern __shared__ __align__(16) u8 memory[];
    Shared s = share(memory);
    u32 tiles = tiles_of(step, args), spans = 1;
    if (args.spans)
        spans = step.group(args.sources[0].group, args.kind == ROWS_OF_STEP ? GROUP_SPANS : GROUP_WANTED_SPANS) / args.span + 1;
    if (FORMED && threadIdx.x == 0) list_chunks(args, s);
    u32 before = FULL;
    if (blockIdx.x >= tiles * spans) args.ahead.prefetch(blockIdx.x - tiles * spans, gridDim.x - tiles * spans);
    for (u32 n = blockIdx.x; n < tiles * spans; n += gridDim.x) {
        Tile t;
        if (!find(step, args, n % tiles, t)) continue;
        // What the tile before has left in shared memory is not read any more.
        __syncthreads();
        run(step, args, t, s, n / tiles, n % tiles == before);
        before = n % tiles;
    }
    wait_for_inputs();
}
