// How some rows are multiplied: a block of threads takes some tiles of 16 weight rows; its warps walk the chunks of k of all of
// them, each warp every so many. Sums of chunks meet in shared
// memory, where they are added in order.
//
// grid: (blocks of tiles of all products, spans); block: (32, warps). Shared: 16 · WIDTH floats for each chunk of each tile.
#pragma once
#include "quant_product.cuh"

// What a lane holds of a step.
template <int TYPE> struct Held {
    Codes<TYPE> codes;
    Scales<TYPE> low, high;

    __device__ __forceinline__ void load(const u8* tile, int step, int lane, int groups) {
        const u8* at = tile + (u64)step * Packed<TYPE>::STEP_BYTES;
        codes.load(at, lane, groups - 8 * step);
        low.load(at, lane / 4), high.load(at, lane / 4 + 8);
    }
};

// MATH has TYPE, the WIDTH of spans and the sums of a tile: `begin`, `clear`, `add` a step, `put`.
//
// Block `block` of product `own` takes its part of span `index`. What all products of a launch share is read of `p`.
template <typename MATH>
__device__ __forceinline__ void walk(const Step& numbers, const Product& own, const Product& p, u32 block, u32 index) {
    constexpr int TYPE = MATH::TYPE, SUMS = TILE * MATH::WIDTH;
    extern __shared__ float parts[];
    const int lane = threadIdx.x, warp = threadIdx.y, warps = blockDim.y;
    const int groups = p.n_in / GROUP, steps = (groups + 7) / 8, chunks = (steps + CHUNK - 1) / CHUNK;
    const int tiles = (own.n_out + TILE - 1) / TILE, first = block * p.tiles;
    const int here = tiles - first < (int)p.tiles ? tiles - first : p.tiles, items = here * chunks;
    const u64 bytes = tile_bytes<TYPE>(groups);
    const bool plain = !p.experts.data;
    Span span;
    start_next();
    // Which matrix is known beforehand unless a router chooses it.
    span.matrix = 0, span.first = index * MATH::WIDTH, span.count = 1, span.entries = nullptr;
    if (!plain) {
        wait_for_inputs();
        if (!find_span(numbers, p, index, MATH::WIDTH, span)) return;
    }
    const u8* weight = own.weight + span.matrix * p.matrix_bytes + first * bytes;
    Held<TYPE> held;
    // Neighbouring warps are at the same k, so that activations are found in the first cache.
    int item = warp;
    if (item < items) held.load(weight + item % here * bytes, item / here * CHUNK, lane, groups);
    if (plain) {
        wait_for_inputs();
        if (!find_span(numbers, p, index, MATH::WIDTH, span)) return;
    }
    MATH math;
    math.begin(p, span, lane, steps);
    while (item < items) {
        const int next = item + warps, step = item / here * CHUNK;
        const u8 *tile = weight + item % here * bytes, *next_tile = weight + next % here * bytes;
        math.clear();
#pragma unroll
        for (int c = 0; c < CHUNK; c++) {
            const bool same = c + 1 < CHUNK;
            const int later = same ? step + c + 1 : next / here * CHUNK;
            const u8* from = same ? tile : next_tile;
            const bool more = (same || next < items) && later < steps;
            // Without registers to load the next step into, it comes as near as the second cache.
            if (more) prefetch(from + (u64)later * Packed<TYPE>::STEP_BYTES, Packed<TYPE>::STEP_BYTES, lane);
            if (step + c < steps) math.add(held, step + c);
            if (more) held.load(from, later, lane, groups);
        }
        math.put(parts + item * SUMS);
        item = next;
    }
    __syncthreads();
    for (int i = warp * 32 + lane; i < here * SUMS; i += 32 * warps) {
        const int tile = i / SUMS, at = i % SUMS;
        const u32 r = at / TILE, column = (first + tile) * TILE + at % TILE;
        if (r >= span.count || column >= own.n_out) continue;
        float total = 0.0f;
        for (int chunk = 0; chunk < chunks; chunk++) total = __fadd_rn(total, parts[(chunk * here + tile) * SUMS + at]);
        output_of(own, span.entry(r))[column] = total;
    }
}

// Products of one input: block (x, y) takes its part of span y.
template <typename MATH> __device__ __forceinline__ void walk_products(const Step& numbers, const Products& products) {
    u32 block = blockIdx.x;
    const Product& own = products.find(block);
    walk<MATH>(numbers, own, products.of[0], block, blockIdx.y);
}
