// The weighted sum of the chosen experts' results, added in their order. A block takes columns, grid.y rows.
#include "common.cuh"

struct ExpertSum {
    Rows x, weights, out;
    u32 kind;
};

extern "C" __global__ void expert_sum(const Step step, const ExpertSum args) {
    begin();
    u32 column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= args.out.width) return;
    for (u32 r = blockIdx.y; r < step.count(args.kind); r += gridDim.y) {
        const float *x = args.x.row(r), *weights = args.weights.row(r);
        float sum = 0.0f;
        for (u32 i = 0; i < args.weights.width; i++) sum = __fmaf_rn(weights[i], x[i * args.out.width + column], sum);
        args.out.row(r)[column] = sum;
    }
}
