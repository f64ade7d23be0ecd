// act(gate) · up for each of some groups of columns. A block takes columns of the result's row, grid.y rows.
#include "common.cuh"

struct Glu {
    // `width` is that of one group.
    Rows gate, up, out;
    // Columns from one group to the next, in `gate` and `up`.
    u32 apart;
    u32 kind;
};

#define GLU(ACT)                                                                    \
    u32 column = blockIdx.x * blockDim.x + threadIdx.x;                             \
    if (column >= args.out.width) return;                                           \
    u32 from = column / args.gate.width * args.apart + column % args.gate.width;    \
    for (u32 r = blockIdx.y; r < step.count(args.kind); r += gridDim.y)             \
        args.out.row(r)[column] = ACT(args.gate.row(r)[from]) * args.up.row(r)[from]

extern "C" __global__ void glu_gelu(const Step step, const Glu args) { begin(); GLU(gelu_of); }
extern "C" __global__ void glu_silu(const Step step, const Glu args) { begin(); GLU(silu_of); }
