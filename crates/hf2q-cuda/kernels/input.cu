// Rows that the step brings along. A block takes columns of a row, grid.y rows.
#include "common.cuh"

struct Input {
    Rows out;
    u32 index;
};

extern "C" __global__ void input(const Step step, const Input args) {
    begin();
    u32 column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= args.out.width) return;
    for (u32 r = blockIdx.y; r < step.count(ROWS_OF_STEP); r += gridDim.y)
        args.out.row(r)[column] = step.input(args.index, (u64)r * args.out.width + column);
}
