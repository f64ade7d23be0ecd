// Keys and values into the cache, and from slot to slot.
#include "kv_store.cuh"

// A block takes a row, a KV head, and its key (grid.z 0) or value.
extern "C" __global__ void __launch_bounds__(128) kv_store(const Step step, const KvStore args) {
    begin();
    __shared__ Draft draft;
    const Cache &cache = args.cache;
    u32 r = blockIdx.x, head = blockIdx.y;
    bool is_key = blockIdx.z == 0 && cache.keys.words != 0;
    if (r >= step.count(ROWS_OF_STEP)) return;
    const float *x = (is_key ? args.k : args.v).row(r) + head * cache.head_dim;
    for (u32 i = threadIdx.x; i < cache.groups() * 32; i += blockDim.x) draft.x[i] = i < cache.head_dim ? x[i] : 0.0f;
    __syncthreads();
    store(args, draft, slot_of(step, args, r), head, is_key);
}

struct KvMove {
    Cache cache;
    u32 count;
    u32 padding;
};

__device__ __forceinline__ void move(const u32 *from, u32 *to, u32 i, u32 j, const Vectors &v, u32 groups, bool is_key) {
    for (u32 n = threadIdx.x; n < groups * v.bits; n += blockDim.x) {
        u32 g = n / v.bits, w = n % v.bits;
        if (is_key) to[key_word(v.bits, g, w, j)] = from[key_word(v.bits, g, w, i)];
        else to[value_word(v.bits, groups, g, w, j)] = from[value_word(v.bits, groups, g, w, i)];
    }
    const u16 *source = scales_of((u32 *)from, v, groups);
    u16 *target = scales_of(to, v, groups);
    for (u32 s = threadIdx.x; s < v.scales; s += blockDim.x) target[s * PAGE + j] = source[s * PAGE + i];
}

// Copies slots in order; `step` is a list of sources and targets in turn. A block takes a KV head.
extern "C" __global__ void kv_move(const Step step, const KvMove args) {
    begin();
    const Cache &cache = args.cache;
    u32 head = blockIdx.x, groups = cache.groups();
    for (u32 m = 0; m < args.count; m++) {
        u32 from = step.at(2 * m), to = step.at(2 * m + 1);
        if (cache.keys.words)
            move(cache.block_of_keys(from / PAGE, head), cache.block_of_keys(to / PAGE, head), from % PAGE, to % PAGE,
                 cache.keys, groups, true);
        move(cache.block_of_values(from / PAGE, head), cache.block_of_values(to / PAGE, head), from % PAGE, to % PAGE,
             cache.values, groups, false);
        __syncthreads();
    }
}
