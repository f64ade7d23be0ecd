// Operations on whole rows, one after another in one launch, of a sequence that is known when the kernel is compiled. A block
// takes a row, a thread the columns that it has in norm.cu, so that sums have the same order; rows are kept in registers.
//
// PROGRAM: a line of row_straight.cuh. COLUMNS: most of a row; its width is a multiple of 256.
#include "norm.cuh"
#include "quantize.cuh"
#include "row_straight.cuh"

// Most rows of memory and numbers of a program: `Args` in launch/row_straight.rs.
enum : int { MOST_ROWS = 20, MOST_NUMBERS = 8, AHEAD = 4 };

struct Straight {
    u32 kind, width;
    // Blocks that compute rows; those behind them bring near what is read next.
    u32 blocks, padding;
    Region ahead[AHEAD];
    // In the order of operations: what is added to the mean of a norm, what is multiplied with.
    float numbers[MOST_NUMBERS];
    // In the order of operations: what is loaded; experts' results and their weights; weights of a norm; a factor; what is
    // stored to; codes and their groups.
    Rows rows[MOST_ROWS];
};

// Words of the program: see `Operation::word` in launch/row_straight.rs.
enum { LOAD, COPY, NORM, EXPERT_SUM };
enum { ADD = 1, SCALE = 2, STORE = 4, QUANTIZE = 8, SAME_FACTOR = 16, WEIGHT = 32, SCALE_BY = 64 };

constexpr u32 OPERATIONS[] = {PROGRAM_WORDS(PROGRAM)};
constexpr int COUNT = sizeof(OPERATIONS) / 4, FOURS = COLUMNS > 4096 ? 2 : 1;
constexpr int THREADS = COLUMNS / 4 / FOURS;

__device__ constexpr u32 code(int i) { return OPERATIONS[i] & 3; }
__device__ constexpr bool has(int i, u32 flag) { return OPERATIONS[i] >> 2 & flag; }
__device__ constexpr int to(int i) { return OPERATIONS[i] >> 16 & 15; }
__device__ constexpr int source(int i) { return OPERATIONS[i] >> 20 & 15; }
__device__ constexpr int added(int i) { return OPERATIONS[i] >> 24 & 15; }
// Whether a norm makes a factor.
__device__ constexpr bool sums(int i) { return code(i) == NORM && !has(i, SAME_FACTOR); }

// Rows of memory of an operation, in the order of `Straight::rows`.
__device__ constexpr int loads(int i) { return code(i) == EXPERT_SUM ? 2 : code(i) == LOAD ? 1 : 0; }
__device__ constexpr int rows_before(int i) {
    int n = 0;
    for (int k = 0; k < i; k++) n += loads(k) + has(k, WEIGHT) + has(k, SCALE_BY) + has(k, STORE) + 2 * has(k, QUANTIZE);
    return n;
}
__device__ constexpr int weight_at(int i) { return rows_before(i) + loads(i); }
__device__ constexpr int scale_by_at(int i) { return weight_at(i) + has(i, WEIGHT); }
__device__ constexpr int store_at(int i) { return scale_by_at(i) + has(i, SCALE_BY); }
__device__ constexpr int codes_at(int i) { return store_at(i) + has(i, STORE); }
__device__ constexpr int numbers_before(int i) {
    int n = 0;
    for (int k = 0; k < i; k++) n += sums(k) + has(k, SCALE);
    return n;
}
__device__ constexpr int most_rows() {
    int n = 0;
    for (int i = 0; i < COUNT; i++) n = to(i) >= n ? to(i) + 1 : n;
    return n;
}
// The operation before `i` that wrote the row that it reads.
__device__ constexpr int writer(int i) {
    int found = 0;
    for (int k = 0; k < i; k++)
        if (to(k) == source(i)) found = k;
    return found;
}
// The norm right before `i` with which its squares are summed, since its row is there already; `i` itself: none.
__device__ constexpr int summed_with(int i) {
    for (int k = i - 1; k > writer(i); k--)
        if (sums(k)) return summed_with(k) == k ? k : i;
    return i;
}

// The first norm behind `i` that is summed with it; `i` itself: none.
__device__ constexpr int next_summed_with(int i) {
    for (int k = i + 1; k < COUNT; k++)
        if (sums(k) && summed_with(k) == i) return k;
    return i;
}
// The norm whose factor `i` uses: the last one that made one.
__device__ constexpr int factor_of(int i) {
    while (!sums(i)) i--;
    return i;
}
// Sums over the block before those of `i`.
__device__ constexpr int sums_before(int i) {
    int n = 0;
    for (int k = 0; k < i; k++) n += sums(k) && summed_with(k) == k;
    return n;
}

// Loads where it stands: the compiler would put it off until the sums before have been made.
__device__ __forceinline__ float4 load_now(const float *x) {
    float4 v;
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(x));
    return v;
}
__device__ __forceinline__ float load_one_now(const float *x) {
    float v;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(x));
    return v;
}
__device__ __forceinline__ float4 times(float4 v, float by) { return make_float4(v.x * by, v.y * by, v.z * by, v.w * by); }

// Four columns of the sum over experts; `x`: of the first.
__device__ __forceinline__ float4 expert_sum(const float *x, const float *weights, u32 experts, u32 width) {
    constexpr u32 AT_ONCE = FOURS == 1 ? 8 : 4;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
    for (u32 first = 0; first < experts; first += AT_ONCE) {
        float4 v[AT_ONCE];
        float w[AT_ONCE];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++) {
            const u32 expert = first + k < experts ? first + k : first;
            v[k] = load_now(x + expert * width), w[k] = load_one_now(weights + expert);
        }
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++) {
            if (first + k >= experts) break;
            sum.x = __fmaf_rn(w[k], v[k].x, sum.x), sum.y = __fmaf_rn(w[k], v[k].y, sum.y);
            sum.z = __fmaf_rn(w[k], v[k].z, sum.z), sum.w = __fmaf_rn(w[k], v[k].w, sum.w);
        }
    }
    return sum;
}

// Sums over a block, the same trees as in `block_sum`; N of them at once. `round` differs from that of the sums before.
template <int N> __device__ __forceinline__ void block_sums(float (&x)[N], int round) {
    __shared__ float parts[2][2][32];
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++) x[n] = warp_sum(x[n]);
    if (lane == 0) {
#pragma unroll
        for (int n = 0; n < N; n++) parts[round % 2][n][threadIdx.x / 32] = x[n];
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < N; n++) x[n] = warp_sum(lane < blockDim.x / 32 ? parts[round % 2][n][lane] : 0.0f);
}

// A row on its way through the program.
struct Way {
    const Straight &args;
    u32 r, width;
    // Of the columns of this thread.
    u32 first, apart;
    bool own[FOURS];
    float4 row[most_rows()][FOURS], weights[COUNT][FOURS];
    float factors[COUNT], scales[COUNT];

    __device__ __forceinline__ Way(const Straight &args, u32 r) : args(args), r(r), width(args.width), first(4 * threadIdx.x), apart(4 * blockDim.x) {
#pragma unroll
        for (int f = 0; f < FOURS; f++) own[f] = first + f * apart < width;
    }

    // Asks for weights, which no kernel writes.
    template <int I = 0> __device__ __forceinline__ void prepare() {
        if constexpr (I < COUNT) {
            if constexpr (has(I, WEIGHT)) {
#pragma unroll
                for (int f = 0; f < FOURS; f++)
                    if (own[f]) weights[I][f] = load_now(args.rows[weight_at(I)].data + first + f * apart);
            }
            if constexpr (has(I, SCALE)) {
                scales[I] = args.numbers[numbers_before(I) + sums(I)];
                if constexpr (has(I, SCALE_BY)) scales[I] = scales[I] * load_one_now(args.rows[scale_by_at(I)].data);
            }
            prepare<I + 1>();
        }
    }

    // Asks for rows.
    template <int I = 0> __device__ __forceinline__ void load() {
        if constexpr (I < COUNT) {
            if constexpr (code(I) == LOAD) {
                const float *from = args.rows[rows_before(I)].row(r) + first;
#pragma unroll
                for (int f = 0; f < FOURS; f++)
                    if (own[f]) row[to(I)][f] = load_now(from + f * apart);
            }
            load<I + 1>();
        }
    }

    // What the operations do.
    template <int I = 0> __device__ __forceinline__ void run() {
        if constexpr (I < COUNT) {
            if constexpr (code(I) != LOAD) {
                if constexpr (sums(I) && summed_with(I) == I) sum<I>();
#pragma unroll
                for (int f = 0; f < FOURS; f++)
                    if (own[f]) four<I>(f, first + f * apart);
            }
            run<I + 1>();
        }
    }

  private:
    __device__ __forceinline__ float squares(int of) const {
        float squares = 0.0f;
#pragma unroll
        for (int f = 0; f < FOURS; f++) {
            if (!own[f]) continue;
            const float4 v = row[of][f];
            squares = __fmaf_rn(v.x, v.x, squares), squares = __fmaf_rn(v.y, v.y, squares);
            squares = __fmaf_rn(v.z, v.z, squares), squares = __fmaf_rn(v.w, v.w, squares);
        }
        return squares;
    }

    // The factor of norm I, and of the next one if its row is there, too.
    template <int I> __device__ __forceinline__ void sum() {
        constexpr int then = next_summed_with(I), N = then > I ? 2 : 1;
        float all[N];
        all[0] = squares(source(I));
        if constexpr (N > 1) all[1] = squares(source(then));
        block_sums(all, sums_before(I));
        factors[I] = inverse_rms_of(all[0], width, args.numbers[numbers_before(I)]);
        if constexpr (N > 1) factors[then] = inverse_rms_of(all[1], width, args.numbers[numbers_before(then)]);
    }

    template <int I> __device__ __forceinline__ void four(int f, u32 column) {
        float4 v;
        if constexpr (code(I) == EXPERT_SUM) {
            const Rows &x = args.rows[rows_before(I)], &w = args.rows[rows_before(I) + 1];
            v = expert_sum(x.row(r) + column, w.row(r), w.width, width);
        } else {
            v = row[source(I)][f];
        }
        if constexpr (code(I) == NORM) {
            v = times(v, factors[factor_of(I)]);
            if constexpr (has(I, WEIGHT)) {
                const float4 w = weights[I][f];
                v.x *= w.x, v.y *= w.y, v.z *= w.z, v.w *= w.w;
            }
        }
        if constexpr (has(I, ADD)) {
            const float4 w = row[added(I)][f];
            v.x = w.x + v.x, v.y = w.y + v.y, v.z = w.z + v.z, v.w = w.w + v.w;
        }
        if constexpr (has(I, SCALE)) v = times(v, scales[I]);
        row[to(I)][f] = v;
        if constexpr (has(I, STORE)) *(float4 *)(args.rows[store_at(I)].row(r) + column) = v;
        if constexpr (has(I, QUANTIZE)) {
            const Coded coded = {(i8 *)args.rows[codes_at(I)].data, (float4 *)args.rows[codes_at(I) + 1].data, width, width};
            const float values[4] = {v.x, v.y, v.z, v.w};
            quantize4(coded, r, column, values, FULL);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) row_straight(const Step step, const __grid_constant__ Straight args) {
    start_next();
    const u32 r = blockIdx.x;
    if (r >= args.blocks) {
        // Those that compute wait for the kernels before: with them these need not.
#pragma unroll 1
        for (int i = 0; i < AHEAD; i++) args.ahead[i].prefetch(r - args.blocks, gridDim.x - args.blocks);
        return;
    }
    Way way(args, r);
    way.prepare();
    const bool real = r < step.count(args.kind);
    wait_for_inputs();
    if (!real) return;
    way.load();
    way.run();
}
