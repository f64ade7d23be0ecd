// The rows whose logits are wanted. A block takes columns of a row, grid.y rows of the result.
#include "common.cuh"

struct SelectRows {
    Rows x, out;
};

extern "C" __global__ void select_rows(const Step step, const SelectRows args) {
    begin();
    u32 column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= args.x.width) return;
    for (u32 r = blockIdx.y; r < step.count(ROWS_OF_LOGITS); r += gridDim.y)
        args.out.row(r)[column] = args.x.row(step.row(ROWS_OF_LOGITS, r))[column];
}
