// Quantizes activations: rows as they are, or act(gate) · up of some groups of columns, which is not written otherwise.
//
// grid: (rows of the bucket · parts, blocks of 1024 values of a part); block: 256, four values a thread.
#include "quantize.cuh"

// `Quantize` in launch/mat_mul_quantize.rs.
struct Quantize {
    Rows x;
    // The other factor of gated units, and columns from one of their groups to the next; `x` has the width of a group.
    Rows up;
    Coded to;
    u32 kind, parts, apart, padding;
};

// VALUE: of column `at` of `x`, whose row is `from`; `up` is that of the other factor.
#define QUANTIZE(AT, VALUE)                                                                 \
    begin();                                                                                \
    const u32 part = blockIdx.x, row = part / args.parts;                                   \
    const u32 first = (blockIdx.y * 256 + threadIdx.x) * 4;                                 \
    /* Eight neighbouring threads have a group, so they leave together. */                  \
    if (row >= step.count(args.kind) || first >= args.to.n_pad) return;                     \
    const u32 active = __activemask(), column = part % args.parts * args.to.n_in + first;   \
    const u32 at = (AT);                                                                    \
    const float *from = args.x.row(row) + at, *up = args.up.row(row) + at;                  \
    float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};                                                  \
    if (first < args.to.n_in) {                                                             \
        _Pragma("unroll") for (int i = 0; i < 4; i++) v[i] = (VALUE);                       \
    }                                                                                       \
    quantize4(args.to, part, first, v, active)

extern "C" __global__ void __launch_bounds__(256) quantize_rows(const Step step, const Quantize args) {
    QUANTIZE(column, from[i]);
}

// Widths of groups are whole fours.
#define GATED column / args.x.width * args.apart + column % args.x.width

extern "C" __global__ void __launch_bounds__(256) quantize_gelu(const Step step, const Quantize args) {
    QUANTIZE(GATED, gelu_of(from[i]) * up[i]);
}
extern "C" __global__ void __launch_bounds__(256) quantize_silu(const Step step, const Quantize args) {
    QUANTIZE(GATED, silu_of(from[i]) * up[i]);
}
