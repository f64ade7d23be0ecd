// Softmax over the experts and the largest of them, in descending order; ties go to the lower index, NaN comes last.
// A warp takes a row: lane l has experts l, l + 32, and so on.
#include "common.cuh"

#define MOST 32 // experts of a lane

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

extern "C" __global__ void route(const Step step, const Route args) {
    begin();
    u32 r = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (r >= step.count(args.kind)) return;
    const float *logits = args.logits.row(r);
    u32 count = args.logits.width, top = args.experts.width;
    float largest = -INFINITE;
    for (u32 e = lane; e < count; e += 32) largest = fmaxf(largest, logits[e]);
    largest = warp_max(largest);
    float sum = 0.0f;
    for (u32 e = lane; e < count; e += 32) sum += exp_of(logits[e] - largest);
    sum = warp_sum(sum);
    u32 taken = 0;
    float total = 0.0f;
    int *experts = (int *)args.experts.row(r);
    float *weights = args.weights.row(r);
    for (u32 k = 0; k < top; k++) {
        // The best of those not yet taken: the larger value first, then the lower index.
        u64 best = 0;
        for (u32 i = 0, e = lane; e < count; i++, e += 32) {
            u64 key = (u64)order_of(logits[e]) << 32 | (FULL - e);
            if (!(taken >> i & 1) && key > best) best = key;
        }
        for (int d = 16; d > 0; d /= 2) {
            u64 other = __shfl_xor_sync(FULL, best, d);
            best = other > best ? other : best;
        }
        u32 chosen = FULL - (u32)best;
        if (chosen % 32 == lane) taken |= 1u << chosen / 32;
        float weight = exp_of(logits[chosen] - largest);
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
