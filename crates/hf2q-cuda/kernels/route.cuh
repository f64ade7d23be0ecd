// Softmax over the experts of a row and the largest of them, in descending order; ties go to the lower index, NaN comes last.
#pragma once
#include "common.cuh"

struct Route {
    Rows logits, experts, weights;
    // One for each expert, or none.
    const float *scale;
    // Whether weights are divided by their own sum or by that of all experts.
    u32 of_chosen;
    u32 kind;
};

// A number that orders floats as they compare, NaN below all of them.
__device__ __forceinline__ u32 order_of(float x) {
    if (x != x) return 0;
    u32 bits = __float_as_uint(x == 0.0f ? 0.0f : x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Reads what another block may have written a moment ago: it is not looked for in the first cache.
__device__ __forceinline__ float load_second(const float *from) {
    float v;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(from) : "memory");
    return v;
}

// Routes row `r`, by a warp: lane l has experts l, l + 32, and so on, HELD of them at most.
template <int HELD> __device__ __forceinline__ void route_row(const Route& args, u32 r, u32 lane) {
    const float *logits = args.logits.row(r);
    u32 count = args.logits.width, top = args.experts.width;
    float x[HELD], largest = -INFINITE, sum = 0.0f;
    // What is left to choose from; 0: nothing.
    u32 order[HELD];
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        u32 e = lane + 32 * i;
        x[i] = e < count ? load_second(logits + e) : -INFINITE;
    }
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        // NaN is more than what does not exist.
        order[i] = lane + 32 * i < count ? order_of(x[i]) + 1 : 0;
        largest = fmaxf(largest, x[i]);
    }
    largest = warp_max(largest);
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (lane + 32 * i < count) sum += exp_of(x[i] - largest);
    sum = warp_sum(sum);
    float total = 0.0f;
    int *experts = (int *)args.experts.row(r);
    float *weights = args.weights.row(r);
    for (u32 k = 0; k < top; k++) {
        u32 best = 0, own = 0;
        float logit = 0.0f;
#pragma unroll
        for (int i = 0; i < HELD; i++)
            if (order[i] > best) best = order[i], own = i, logit = x[i];
        u32 most = __reduce_max_sync(FULL, best);
        // Of equal ones that with the lowest index.
        u32 chosen = __reduce_min_sync(FULL, best == most ? own * 32 + lane : FULL);
#pragma unroll
        for (int i = 0; i < HELD; i++)
            if (lane + 32 * i == chosen) order[i] = 0;
        float weight = exp_of(__shfl_sync(FULL, logit, chosen % 32) - largest);
        total += weight;
        if (lane == 0) {
            experts[k] = (int)chosen;
            weights[k] = weight;
        }
    }
    __syncwarp();
    float divisor = args.of_chosen ? total : sum;
    for (u32 k = lane; k < top; k += 32) {
        float scale = args.scale ? args.scale[experts[k]] : 1.0f;
        weights[k] = __fdiv_rn(weights[k], divisor) * scale;
    }
}
