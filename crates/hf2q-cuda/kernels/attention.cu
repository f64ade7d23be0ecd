// Attention over cached keys and values of any format, also of two sources, in single precision.
//
// Four threads share a key, each a quarter of its components; the sums of values lie in registers, up to DIMS components of
// a thread.
#include "attention_scores.cuh"

// Decodes a group of a position's value into the tile.
template <typename F>
__device__ __forceinline__ void decode(const Cache &cache, const Tile &t, const Shared &s, u32 slot, u32 g, float *to) {
    u32 groups = cache.groups(), p = slot % PAGE;
    u32 *block = cache.block_of_values(slot / PAGE, t.kv_head);
    float scale = 1.0f;
    if (cache.values.scales) scale = half_to_float(scales_of(block, cache.values, groups)[g * 32 / cache.values.block * PAGE + p]);
    const u32 *from = block + value_word(F::BITS, groups, g, 0, p);
    constexpr int COUNT = F::PIECE * 32 / F::BITS;
#pragma unroll 2
    for (int first = 0; first < 32; first += COUNT, to += COUNT) {
        u32 words[F::PIECE];
        F::load(from + first * F::BITS / 32 / F::VECTOR * groups * F::VECTOR, groups * F::VECTOR, words);
#pragma unroll
        for (int i = 0; i < COUNT; i++) to[i] = F::value(words, i, s.value_levels) * scale;
    }
}

// Positions of a page whose values are in the tile at a time.
__device__ __forceinline__ u32 tile_keys(u32 groups) { return min((u32)PAGE, THREADS / groups / 4 * 4); }

// Decodes values of `each` positions of a page into the tile: a thread takes a group of a position.
__device__ __forceinline__ void fill(const Cache &cache, const Tile &t, const Shared &s, u32 first, u32 each) {
    u32 groups = cache.groups(), key = threadIdx.x / groups, g = threadIdx.x % groups;
    if (key < each && first + key < PAGE) {
        u32 slot = s.slots[first + key];
        float *to = s.tile + threadIdx.x * 33;
        if (slot == NO_SLOT) {
            for (int i = 0; i < 32; i++) to[i] = 0.0f;
        } else {
            WITH_FORMAT(cache.values.format, decode<F>(cache, t, s, slot, g, to))
        }
    }
    __syncthreads();
}

__device__ __forceinline__ u32 in_tile(u32 i) { return i + i / 32; }

// Turns the tile's values back where they are stored rotated.
__device__ __forceinline__ void unrotate_tile(const Cache &cache, const Shared &s, u32 each) {
    u32 n = cache.values.block, count = each * cache.groups() * 32;
    for (u32 d = 1; d < n; d *= 2) {
        for (u32 i = threadIdx.x; i < count / 2; i += THREADS) {
            u32 at = i / d * 2 * d + i % d;
            float a = s.tile[in_tile(at)], b = s.tile[in_tile(at + d)];
            s.tile[in_tile(at)] = a + b;
            s.tile[in_tile(at + d)] = a - b;
        }
        __syncthreads();
    }
    float factor = rotation_factor(n);
    for (u32 i = threadIdx.x; i < count; i += THREADS) s.tile[in_tile(i)] *= factor * sign_of(i % n);
    __syncthreads();
}

// Values of the tile become keys: weighted, then turned by their positions. The angle of a position is that of its
// page's start and that within the page.
__device__ __forceinline__ void form_keys(const Attention &args, const Shared &s, u32 first, u32 each) {
    u32 width = args.width(), n = args.sources[0].cache.head_dim;
    if (args.key_weights) {
        for (u32 i = threadIdx.x; i < each * width; i += THREADS)
            if (i % width < n) s.tile[in_tile(i)] *= __ldg(args.key_weights + i % width);
        __syncthreads();
    }
    for (u32 i = threadIdx.x; i < each * args.pairs; i += THREADS) {
        u32 key = i / args.pairs, pair = i % args.pairs;
        if (first + key >= PAGE) continue;
        float2 page = s.turns[pair], offset = __ldg(args.offsets + (first + key) * args.pairs + pair);
        float c = __fmaf_rn(page.x, offset.x, -(page.y * offset.y)), n = __fmaf_rn(page.y, offset.x, page.x * offset.y);
        c *= args.magnitude;
        n *= args.magnitude;
        u32 base = key * width;
        float *x = s.tile + in_tile(base + (args.adjacent ? 2 * pair : pair));
        float *y = s.tile + in_tile(base + (args.adjacent ? 2 * pair + 1 : pair + args.pairs));
        float a = *x, b = *y;
        *x = a * c - b * n;
        *y = a * n + b * c;
    }
    __syncthreads();
}

// Scores of a page whose keys are formed of values; a thread takes a group of a key.
__device__ __forceinline__ void formed_scores(const Attention &args, const Cache &cache, const Tile &t, const Shared &s, u32 page) {
    u32 groups = cache.groups(), each = tile_keys(groups), key = threadIdx.x / groups, g = threadIdx.x % groups;
    for (u32 i = threadIdx.x; i < args.pairs; i += THREADS) {
        // In halves of a turn, brought between -1 and 1 in double precision.
        double turns = (double)(page * PAGE) * args.frequencies[i] * 0.31830988618379067;
        float n, c;
        sincospif((float)(turns - 2.0 * rint(turns * 0.5)), &n, &c);
        s.turns[i] = make_float2(c, n);
    }
    for (u32 first = 0; first < PAGE; first += each) {
        fill(cache, t, s, first, each);
        if (cache.values.format >= KV_TQ2) unrotate_tile(cache, s, each);
        form_keys(args, s, first, each);
        if (key < each) {
            const float *k = s.tile + threadIdx.x * 33, *q = s.q + g * 33;
            float sums[QUERIES];
#pragma unroll
            for (int i = 0; i < QUERIES; i++) sums[i] = 0.0f;
#pragma unroll 4
            for (int d = 0; d < 32; d++)
#pragma unroll
                for (int i = 0; i < QUERIES; i++) sums[i] = __fmaf_rn(q[i * groups * 33 + d], k[d], sums[i]);
#pragma unroll
            for (int i = 0; i < QUERIES; i++) s.partial[(g * QUERIES + i) * each + key] = sums[i];
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < QUERIES * each; i += THREADS) {
            float sum = s.partial[i];
            for (u32 n = 1; n < groups; n++) sum += s.partial[n * QUERIES * each + i];
            if (first + i % each < PAGE) s.p[i / each * PAGE + first + i % each] = sum;
        }
        __syncthreads();
    }
}

// Adds the weighted values of a page. MIXED: some queries do not see keys that others see, whose values may be no numbers, so
// they are left out; else what is not seen is zero.
template <bool MIXED>
__device__ __forceinline__ void values(const Cache &cache, const Tile &t, const Shared &s, float (&sums)[QUERIES][DIMS]) {
    u32 groups = cache.groups(), each = tile_keys(groups);
#pragma unroll
    for (int i = 0; i < QUERIES; i++)
#pragma unroll
        for (int j = 0; j < DIMS; j++) sums[i][j] *= s.factor[i];
    for (u32 first = 0; first < PAGE; first += each) {
        fill(cache, t, s, first, each);
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
                float4 four = *(const float4 *)(s.p + i * PAGE + first + k);
                float p[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int j = 0; j < DIMS; j++) {
                    if (j * THREADS >= groups * 32) continue;
#pragma unroll
                    for (int n = 0; n < 4; n++)
                        if (!MIXED || __float_as_uint(p[n]) != UNSEEN) sums[i][j] = __fmaf_rn(p[n], v[n][j], sums[i][j]);
                }
            }
        }
        __syncthreads();
    }
}

// Pages `first` to `last` of a source, from nothing.
__device__ __forceinline__ void
span(const Step &step, const Attention &args, const Source &from, const Tile &t, const Shared &s, u32 first, u32 last, float (&sums)[QUERIES][DIMS]) {
    if (threadIdx.x < QUERIES) {
        s.largest[threadIdx.x] = -INFINITE;
        s.total[threadIdx.x] = 0.0f;
    }
#pragma unroll
    for (int q = 0; q < QUERIES; q++)
#pragma unroll
        for (int j = 0; j < DIMS; j++) sums[q][j] = 0.0f;
    for (u32 page = first; page <= last; page++) {
        find_slots(step, from, t, s, page);
        if (from.cache.keys.words) scores(from.cache, t, s);
        else formed_scores(args, from.cache, t, s, page);
        softmax(step, args, t, s, page);
        if (is_mixed(args, t, page)) values<true>(from.cache, t, s, sums);
        else values<false>(from.cache, t, s, sums);
    }
}

// Brings sums from the basis of the first source's values to that of the second's.
__device__ __forceinline__ void turn_between(const Attention &args, float *sums, u32 count) {
    const Vectors &first = args.sources[0].cache.values, &second = args.sources[1].cache.values;
    bool before = first.format >= KV_TQ2, after = second.format >= KV_TQ2;
    if (before && !after) rotate_back(sums, count, first.block);
    if (!before && after) rotate(sums, count, second.block);
}

// Quotients of `sums` by `total`, in the basis of values that are not rotated, from shared memory.
__device__ __forceinline__ void write(const Attention &args, float *sums, float total, u32 row, u32 head) {
    const Cache &last = args.sources[args.sources[1].pages ? 1 : 0].cache;
    u32 n = last.head_dim;
    if (last.values.format >= KV_TQ2) rotate_back(sums, n, last.values.block);
    float inverse = __fdiv_rn(1.0f, total), *out = args.out.row(row) + head * n;
    for (u32 d = threadIdx.x; d < n; d += blockDim.x) out[d] = sums[d] * inverse;
}

// Whether a query sees nothing of a span. Where a score is no number, the sum of exponentials is none.
__device__ __forceinline__ bool is_empty(const Shared &s, u32 q) { return s.largest[q] == -INFINITE && s.total[q] == 0.0f; }

// Joins a span with those before.
__device__ __forceinline__ void join_all(const Shared &s, u32 width, float (&sums)[QUERIES][DIMS]) {
#pragma unroll
    for (int q = 0; q < QUERIES; q++) {
        if (is_empty(s, q)) continue;
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
    if (q < QUERIES && !is_empty(s, q)) {
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
    u32 low = t.low / PAGE, own = (t.high - 1) / PAGE;
#pragma unroll 1
    for (int source = 0; source < 2; source++) {
        const Source &from = args.sources[source];
        u32 first = source ? t.border : low, end = source ? own + 1 : t.border;
        if (first >= end) continue;
        if (source) turn_between(args, s.all, QUERIES * width);
        enter(args, from, t, s);
        for (u32 i = first / SPAN; i <= (end - 1) / SPAN; i++) {
            float sums[QUERIES][DIMS];
            span(step, args, from, t, s, max(i * SPAN, first), min(i * SPAN + SPAN, end) - 1, sums);
            join_all(s, width, sums);
        }
    }
    for (u32 q = 0; q < t.queries(); q++)
        write(args, s.all + q * width, s.all_total[q], t.at + t.row_of(q), t.head_of(q));
}

// Part `k` of a tile's keys, kept for `join`: spans of the first source from the first that it sees on, then, one further, those
// of the second.
__device__ __forceinline__ void one_span(const Step &step, const Attention &args, const Tile &t, const Shared &s, u32 width, u32 k) {
    u32 low = t.low / PAGE, own = (t.high - 1) / PAGE, i = low / SPAN + k;
    bool second = t.border <= low || i > (t.border - 1) / SPAN;
    if (second && k == 0) return;
    if (second) i--;
    u32 first = second ? t.border : low, end = second ? own + 1 : t.border;
    if (i < first / SPAN || i > (end - 1) / SPAN || first >= end) return;
    const Source &from = args.sources[second];
    enter(args, from, t, s);
    float sums[QUERIES][DIMS];
    span(step, args, from, t, s, max(i * SPAN, first), min(i * SPAN + SPAN, end) - 1, sums);
#pragma unroll
    for (int q = 0; q < QUERIES; q++) {
        if (q >= t.queries()) continue;
        u32 row = t.at + t.row_of(q);
        u32 first_span = first_seen(step.position(t.row + t.row_of(q)), args.window) / (SPAN * PAGE);
        u32 place = i + second - first_span;
        if (i < first_span || place >= args.spans_each) continue;
        float *to = args.spans + ((u64)(row * args.heads + t.head_of(q)) * args.spans_each + place) * (width + 4);
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

extern "C" __global__ void __launch_bounds__(THREADS, 2) attention(const Step step, const __grid_constant__ Attention args) {
    begin();
    extern __shared__ __align__(16) float memory[];
    u32 width = args.width(), tiles = tiles_of(step, args), spans = 1;
    Shared s = share(memory, width);
    if (args.spans) {
        spans = step.group(args.sources[0].group, args.kind == ROWS_OF_STEP ? GROUP_SPANS : GROUP_WANTED_SPANS);
        spans += args.sources[1].pages ? 1 : 0;
    }
    for (u32 n = blockIdx.x; n < tiles * spans; n += gridDim.x) {
        Tile t;
        if (!find(step, args, n % tiles, t)) continue;
        // What the tile before has left in shared memory is not read any more.
        __syncthreads();
        if (args.spans) one_span(step, args, t, s, width, n / tiles);
        else all_spans(step, args, t, s, width);
    }
}

// Joins the spans of a row and head: grid.x rows, grid.y heads.
extern "C" __global__ void __launch_bounds__(THREADS) join(const Step step, const __grid_constant__ Attention args) {
    begin();
    __shared__ float sums[DIMS * THREADS];
    __shared__ float2 parts[THREADS], factors[THREADS];
    u32 r = blockIdx.x, head = blockIdx.y, width = args.width();
    if (r >= step.count(args.kind)) return;
    u32 position = step.position(step.row(args.kind, r)), low = first_seen(position, args.window) / PAGE;
    u32 border = border_of(args, position, low), own = position / PAGE;
    const float *rows = args.spans + (u64)(r * args.heads + head) * args.spans_each * (width + 4);
    float largest = -INFINITE, total = 0.0f;
    for (u32 d = threadIdx.x; d < DIMS * THREADS; d += THREADS) sums[d] = 0.0f;
    for (int source = 0; source < 2; source++) {
        u32 first = source ? border : low, end = source ? own + 1 : border;
        if (first >= end) continue;
        if (source) turn_between(args, sums, width);
        float all[DIMS];
#pragma unroll
        for (int j = 0; j < DIMS; j++) all[j] = sums[threadIdx.x + j * THREADS];
        u32 last = (end - 1) / SPAN;
        for (u32 start = first / SPAN; start <= last; start += THREADS) {
            const float *from = rows + (u64)(start + source - low / SPAN) * (width + 4);
            u32 count = min(last - start + 1, (u32)THREADS);
            __syncthreads();
            if (threadIdx.x < count) parts[threadIdx.x] = *(const float2 *)(from + (u64)threadIdx.x * (width + 4));
            __syncthreads();
            // Every part holds a position that the row sees, so none is empty. What each is multiplied with follows from
            // the largest score before it.
            float before = largest;
            for (u32 i = 0; i < count; i++) {
                if (i == threadIdx.x) before = largest;
                largest = fmaxf(largest, parts[i].x);
            }
            if (threadIdx.x < count) join_factors(before, parts[threadIdx.x].x, factors[threadIdx.x].x, factors[threadIdx.x].y);
            __syncthreads();
#pragma unroll 4
            for (u32 i = 0; i < count; i++) {
                float2 factor = factors[i];
                total = joined(total, factor.x, parts[i].y, factor.y);
#pragma unroll
                for (int j = 0; j < DIMS; j++) {
                    u32 d = threadIdx.x + j * THREADS;
                    if (d < width) all[j] = joined(all[j], factor.x, from[(u64)i * (width + 4) + 4 + d], factor.y);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < DIMS; j++) sums[threadIdx.x + j * THREADS] = all[j];
        __syncthreads();
    }
    write(args, sums, total, r, head);
}
