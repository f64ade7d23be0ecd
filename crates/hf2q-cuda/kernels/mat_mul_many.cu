// Products of quantized weights with many rows: a block multiplies 32 · WARPS weight rows with COLUMNS entries, a warp 32 of the
// rows with all of them. Activations of half a step are in shared memory while those of the next are copied; weights go from
// memory to registers, one pair of groups ahead.
//
// Scaling integer sums and adding them up takes most of the time, and tensor cores do not multiply meanwhile: the units of single
// precision bind. So all else is read or made once for as many elements as registers hold.
//
// grid: (spans, blocks of tiles of all products); block: 32 · WARPS.
#include "quant_product.cuh"

enum : int {
    THREADS = 32 * WARPS,
    // Entries of a span: `MANY` in launch/mat_mul.rs.
    COLUMNS = 64,
    // Pairs of groups whose activations are copied together, and groups.
    PAIRS = 2,
    GROUPS = 2 * PAIRS,
    // Bytes of a column's codes: the rest of 32 keeps four columns in different banks.
    PITCH = GROUPS * GROUP + 32,
    // Products between tests for the end of a span.
    MIX = 4,
    // Neighbouring tiles of a warp, which share what is read of the columns.
    OWN = 2,
    N = COLUMNS / 8,
};

// What is derived of the sums of a group: nothing, a number, or one for each half.
template <int TYPE> constexpr int DERIVED = Packed<TYPE>::MINIMUM || Packed<TYPE>::OFFSET ? Packed<TYPE>::HALVES : 0;

// Half a step of the columns. Of each pair, two neighbouring columns have four scales: those of the first group, those of the second.
template <int TYPE> struct Stage {
    i8 codes[COLUMNS * PITCH];
    float scales[PAIRS * COLUMNS * 2];
    float derived[DERIVED<TYPE> ? DERIVED<TYPE> : 1][PAIRS * COLUMNS * 2];
};

// Scales of the rows of a warp for a step, by pair: of a row, scales of the pair's halves, then minimums.
template <int TYPE> struct RowScales {
    static constexpr int EACH = 2 * Packed<TYPE>::HALVES * (Packed<TYPE>::MINIMUM ? 2 : 1);
    float of[4][OWN * TILE][EACH];
};

// The shared memory of a block: `many_shared` in launch/mat_mul.rs.
template <int TYPE> struct Memory {
    Stage<TYPE> stages[2];
    // Groups of the columns as they lie in memory.
    float4 groups[GROUPS * COLUMNS];
    RowScales<TYPE> rows[WARPS];
    float4 totals[OWN * N * THREADS];
};

__device__ __forceinline__ void copy16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}

// The parts of a thread in what is copied: groups of columns, of each half step.
template <int TYPE> struct Parts {
    static constexpr int EACH = GROUPS * COLUMNS / THREADS;
    static_assert(EACH * THREADS == GROUPS * COLUMNS, "threads copy alike");
    const i8* codes;
    const float4* groups;
    Memory<TYPE>* to;
    u32 thread, next[EACH];

    __device__ __forceinline__ u32 item(int i) const { return thread + i * THREADS; }

    // Queues the copies of half a step, the one behind the last that was asked for.
    __device__ __forceinline__ void fetch(int half) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const i8* from = codes + (u64)next[i] * GROUP;
            i8* own = to->stages[half % 2].codes + item(i) / GROUPS * PITCH + item(i) % GROUPS * GROUP;
            copy16(own, from), copy16(own + 16, from + 16);
            copy16(&to->groups[item(i)], groups + next[i]);
            next[i] += GROUPS;
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }

    // Waits for them, and derives what is read of groups.
    __device__ __forceinline__ void derive(int half) const {
        typedef Column<TYPE> C;
        Stage<TYPE>& stage = to->stages[half % 2];
        asm volatile("cp.async.wait_group 0;" ::: "memory");
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const float4 v = to->groups[item(i)];
            const u32 c = item(i) / GROUPS, group = item(i) % GROUPS, at = ((group / 2 * COLUMNS + c) / 2 * 2 + group % 2) * 2 + c % 2;
            stage.scales[at] = v.x;
            if constexpr (DERIVED<TYPE> == 1) stage.derived[0][at] = C::derived(v.x, v.y);
            if constexpr (DERIVED<TYPE> == 2) stage.derived[0][at] = C::derived(v.x, v.z), stage.derived[1][at] = C::derived(v.x, v.w);
        }
    }
};

template <int TYPE> __device__ __forceinline__ void put(RowScales<TYPE>& to, const Scales<TYPE>& scales, int lane) {
    constexpr int COUNT = 2 * Packed<TYPE>::HALVES;
    __syncwarp();
#pragma unroll
    for (int pair = 0; pair < 4; pair++) {
        float s[COUNT], m[COUNT];
        scales.pair(pair, s, m);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            to.of[pair][lane][i] = s[i];
            if constexpr (Packed<TYPE>::MINIMUM) to.of[pair][lane][COUNT + i] = m[i];
        }
    }
    __syncwarp();
}

template <int TYPE>
__device__ __forceinline__ void get(const RowScales<TYPE>& from, int pair, int row, float (&s)[2 * Packed<TYPE>::HALVES],
                                    float (&m)[2 * Packed<TYPE>::HALVES]) {
    constexpr int COUNT = 2 * Packed<TYPE>::HALVES, EACH = RowScales<TYPE>::EACH;
    float v[EACH];
    if constexpr (EACH == 2) {
        const float2 two = *(const float2*)from.of[pair][row];
        v[0] = two.x, v[1] = two.y;
    } else {
#pragma unroll
        for (int i = 0; i < EACH; i += 4) {
            const float4 four = *(const float4*)(from.of[pair][row] + i);
            v[i] = four.x, v[i + 1] = four.y, v[i + 2] = four.z, v[i + 3] = four.w;
        }
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        s[i] = v[i];
        if constexpr (Packed<TYPE>::MINIMUM) m[i] = v[COUNT + i];
    }
}

// Adds a pair of groups of all columns.
template <int TYPE>
__device__ __forceinline__ void add(float (&sums)[OWN][N][4], const PairCodes<TYPE> (&codes)[OWN], const RowScales<TYPE>& rows,
                                    const Stage<TYPE>& x, int pair, int k, int lane, u32 count) {
    typedef Packed<TYPE> P;
    const int g = lane / 4, t = lane % 4;
    float s[OWN][2][2 * P::HALVES], m[OWN][2][2 * P::HALVES];
    u32 a[OWN][2][4];
#pragma unroll
    for (int o = 0; o < OWN; o++) {
        get(rows, pair, TILE * o + g, s[o][0], m[o][0]), get(rows, pair, TILE * o + g + 8, s[o][1], m[o][1]);
        codes[o].fragment(0, a[o][0]), codes[o].fragment(1, a[o][1]);
    }
    const i8* own = x.codes + g * PITCH + k * 2 * GROUP + 8 * t;
    const int at = (k * COLUMNS + 2 * t) * 2;
    // Sums are made one product ahead: they take long.
    int acc[2][OWN][2 * P::HALVES][4];
    const auto make = [&](int n) {
        const uint2 b[2] = {*(const uint2*)(own + 8 * n * PITCH), *(const uint2*)(own + 8 * n * PITCH + GROUP)};
#pragma unroll
        for (int o = 0; o < OWN; o++) {
            multiply_group<TYPE>(acc[n % 2][o], 0, a[o][0], b[0]);
            multiply_group<TYPE>(acc[n % 2][o], 1, a[o][1], b[1]);
        }
    };
    make(0);
#pragma unroll
    for (int n = 0; n < N; n++) {
        // The last span of an expert has few entries. Between the tests the compiler mixes products.
        if (n && n % MIX == 0 && 8 * n >= count) break;
        if (n + 1 < N) make(n + 1);
        const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f), d = *(const float4*)(x.scales + at + 16 * n);
        const float4 first = DERIVED<TYPE> > 0 ? *(const float4*)(x.derived[0] + at + 16 * n) : zero;
        const float4 second = DERIVED<TYPE> > 1 ? *(const float4*)(x.derived[DERIVED<TYPE> > 1] + at + 16 * n) : zero;
        Column<TYPE> column[2];
        column[0].hold(0, d.x, first.x, second.x), column[1].hold(0, d.y, first.y, second.y);
        column[0].hold(1, d.z, first.z, second.z), column[1].hold(1, d.w, first.w, second.w);
#pragma unroll
        for (int o = 0; o < OWN; o++) add_pair<TYPE>(sums[o][n], acc[n % 2][o], s[o], m[o], column);
    }
}

// Adds sums of a chunk to totals, from where the next starts at zero.
__device__ __forceinline__ void end_chunk(float4* totals, float (&sums)[OWN][N][4]) {
#pragma unroll
    for (int i = 0; i < OWN * N; i++) {
        float(&own)[4] = sums[i / N][i % N];
        float4 v = totals[i * THREADS];
        v.x = __fadd_rn(v.x, own[0]), v.y = __fadd_rn(v.y, own[1]), v.z = __fadd_rn(v.z, own[2]), v.w = __fadd_rn(v.w, own[3]);
        totals[i * THREADS] = v;
        own[0] = own[1] = own[2] = own[3] = 0.0f;
    }
}

__device__ __forceinline__ void write(const Product& own, const Span& span, const float4* totals, u32 tile, int lane) {
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const u32 c = 8 * n + lane % 4 * 2 + i;
            if (c >= span.count) continue;
            float* out = output_of(own, span.entry(c));
#pragma unroll
            for (int o = 0; o < OWN; o++) {
                const u32 row = (tile + o) * TILE + lane / 4;
                const float4 v = totals[(o * N + n) * THREADS];
                if (row < own.n_out) out[row] = i ? v.y : v.x;
                if (row + 8 < own.n_out) out[row + 8] = i ? v.w : v.z;
            }
        }
    }
}

template <int TYPE> __device__ __forceinline__ void many(const Step& numbers, const Products& products) {
    u32 block = blockIdx.y;
    const Product& own = products.find(block);
    const Product& p = products.of[0];
    extern __shared__ __align__(16) u8 shared[];
    Memory<TYPE>& memory = *(Memory<TYPE>*)shared;
    Span span;
    start_next();
    wait_for_inputs();
    if (!find_span(numbers, p, blockIdx.x, COLUMNS, span)) return;
    // Volatile, so that it is not read again and again.
    u32 thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    const int lane = thread % 32, warp = thread / 32;
    const u32 tiles = (own.n_out + TILE - 1) / TILE, tile = (block * WARPS + warp) * OWN;
    const bool active = tile < tiles;
    const int groups = p.n_in / GROUP, steps = (groups + 7) / 8;
    const u64 bytes = tile_bytes<TYPE>(groups);
    // The last tile may be there twice.
    const u8* weight = own.weight + span.matrix * p.matrix_bytes + (active ? tile : 0) * bytes;
    const u32 apart = tile + 1 < tiles ? bytes : 0;
    Parts<TYPE> parts = {p.codes, p.groups, &memory, thread};
#pragma unroll
    for (int i = 0; i < parts.EACH; i++) {
        const u32 c = parts.item(i) / GROUPS;
        parts.next[i] = input_of(p, span.entry(c < span.count ? c : 0)) * steps * 8 + parts.item(i) % GROUPS;
    }
    parts.fetch(0);
    float sums[OWN][N][4];
    float4* totals = memory.totals + thread;
    RowScales<TYPE>& rows = memory.rows[warp];
#pragma unroll
    for (int i = 0; i < OWN * N; i++) {
        float(&own)[4] = sums[i / N][i % N];
        own[0] = own[1] = own[2] = own[3] = 0.0f;
        totals[i * THREADS] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    typedef Packed<TYPE> P;
    PairCodes<TYPE> next[OWN];
    Scales<TYPE> scales;
    const u8* loads = weight + P::SCALES + 16 * lane;
    const u8* row = weight + (lane < TILE ? 0 : apart);
#pragma unroll
    for (int o = 0; o < OWN; o++) next[o].load(loads + o * apart, 0, groups);
    scales.load(row, lane % TILE);
    put(rows, scales, lane);
#pragma unroll 1
    for (int half = 0; half < 2 * steps; half++) {
        const int odd = half % 2, left = groups - half / 2 * 8;
        parts.derive(half);
        __syncthreads();
        if (half + 1 < 2 * steps) parts.fetch(half + 1);
        if (!active) continue;
        const bool last = odd && left > 8;
        const Stage<TYPE>& stage = memory.stages[odd];
#pragma unroll 1
        for (int k = 0; k < PAIRS; k++) {
            const int later = odd && k;
            PairCodes<TYPE> codes[OWN];
            loads += later * P::STEP_BYTES;
#pragma unroll
            for (int o = 0; o < OWN; o++) {
                codes[o] = next[o];
                next[o].load(loads + o * apart, (2 * odd + k + 1) % 4, left - 8 * later);
            }
            if (last && k) scales.load(row += P::STEP_BYTES, lane % TILE);
            add(sums, codes, rows, stage, 2 * odd + k, k, lane, span.count);
        }
        if (last) put(rows, scales, lane);
        if (half % (2 * CHUNK) == 2 * CHUNK - 1 || half + 1 == 2 * steps) end_chunk(totals, sums);
    }
    if (active) write(own, span, totals, tile, lane);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) mat_mul_many(const Step step, const __grid_constant__ Products args) {
    many<WEIGHT>(step, args);
}
