// Value by value: a + b, x · constant · by, cap · tanh(x / cap). A block takes columns of a row, grid.y rows.
#include "common.cuh"

struct Elementwise {
    Rows a, b, out;
    const float *by;
    float constant;
    u32 kind;
};

#define EACH(VALUE)                                                                     \
    u32 column = blockIdx.x * blockDim.x + threadIdx.x;                                 \
    if (column >= args.a.width) return;                                                 \
    for (u32 r = blockIdx.y; r < step.count(args.kind); r += gridDim.y)                 \
        args.out.row(r)[column] = (VALUE)

extern "C" __global__ void add(const Step step, const Elementwise args) {
    begin();
    EACH(args.a.row(r)[column] + args.b.row(r)[column]);
}

extern "C" __global__ void scale(const Step step, const Elementwise args) {
    begin();
    float factor = args.by ? args.constant * *args.by : args.constant;
    EACH(args.a.row(r)[column] * factor);
}

extern "C" __global__ void soft_cap(const Step step, const Elementwise args) {
    begin();
    EACH(soft_cap_of(args.a.row(r)[column], args.constant));
}
