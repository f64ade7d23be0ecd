// What becomes of projected queries, keys and values, in one launch: norms of heads, rotation, storing. A block takes a head of
// a row. Sums have the order of norm.cu.
#include "norm.cuh"
#include "kv_store.cuh"

// What is done with heads of one kind: `Part` in launch/heads.rs.
struct Part {
    Norm norm;
    // Rows are normalized, turned.
    u32 norms, turns;
};

struct Heads {
    Part q, k, v;
    KvStore store;
    u32 q_heads, k_heads, v_heads, padding;
};

enum : int { THREADS = 128, WIDEST_HEAD = 512 };

// The head `x` normalized, into `to`.
__device__ __forceinline__ void normalize(const Norm &args, const float *x, float *to) {
    u32 n = args.group, threads = threads_of(n);
    float squares = squares_of(n, threads, [&](u32 i) { return x[i]; });
    float factor = inverse_rms_of(block_sum(squares, threads), n, args.eps);
#pragma unroll 1
    for (u32 i = threadIdx.x; i < n; i += THREADS) {
        float y = x[i] * factor;
        to[i] = args.weight ? y * __ldg(args.weight + i) : y;
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS) heads(const Step step, const __grid_constant__ Heads args) {
    __shared__ Draft draft;
    __shared__ float head[WIDEST_HEAD], normal[WIDEST_HEAD];
    start_next();
    u32 r = blockIdx.x, h = blockIdx.y;
    // No kernel writes the step's numbers.
    bool real = r < step.count(ROWS_OF_STEP);
    u32 slot = real ? slot_of(step, args.store, r) : 0;
    wait_for_inputs();
    if (!real) return;
    bool is_query = h < args.q_heads;
    if (!is_query) h -= args.q_heads;
    bool is_key = !is_query && h < args.k_heads;
    if (!is_query && !is_key) h -= args.k_heads;
    const Part &part = is_query ? args.q : is_key ? args.k : args.v;
    const Norm &norm = part.norm;
    const float *x = norm.x.row(r) + h * norm.group;
#pragma unroll 4
    for (u32 i = threadIdx.x; i < norm.group; i += THREADS) head[i] = x[i];
    __syncthreads();
    const float *from = head;
    if (part.norms) {
        normalize(norm, head, normal);
        from = normal;
    }
    float *to = is_query ? norm.out.row(r) + h * norm.group : draft.x;
    if (part.turns) {
        turn_head(norm, norm.angles + (u64)r * 2 * norm.pairs, to, threadIdx.x, THREADS, [&](u32 i) { return from[i]; });
    } else {
#pragma unroll 1
        for (u32 i = threadIdx.x; i < norm.group; i += THREADS) to[i] = from[i];
    }
    if (is_query) return;
    for (u32 i = norm.group + threadIdx.x; i < args.store.cache.groups() * 32; i += THREADS) draft.x[i] = 0.0f;
    __syncthreads();
    store(args.store, draft, slot, h, is_key);
}
