// Rows of an embedding table, dequantized and scaled. A block takes columns of a row, grid.y rows. TABLE: the number of
// the tensor's type.
#include "raw.cuh"

struct Embed {
    const u8 *table;
    u64 row_bytes;
    Rows out;
    float scale;
};

extern "C" __global__ void embed(const Step step, const Embed args) {
    begin();
    u32 column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= args.out.width) return;
    u32 block = column / Raw<TABLE>::LEN;
    for (u32 r = blockIdx.y; r < step.count(ROWS_OF_STEP); r += gridDim.y) {
        const u8 *row = args.table + args.row_bytes * step.token(r);
        float value = raw_value<TABLE>(row + block * Raw<TABLE>::BYTES, column % Raw<TABLE>::LEN);
        args.out.row(r)[column] = value * args.scale;
    }
}
