// The experts of each row. A warp takes a row.
#include "route.cuh"

extern "C" __global__ void route(const Step step, const Route args) {
    begin();
    const u32 r = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (r < step.count(args.kind)) route_row<EACH>(args, r, threadIdx.x % 32);
}
