// Products of one row: those of some inputs, with weights of up to two quantized formats and in f32, in one launch. With one row
// each of them takes about as long as it takes a launch to begin and to end.
//
// A product may read gated units, which a block then makes itself instead of reading what a launch before it has made, and
// the last block of a router's product chooses the experts.
//
// grid: blocks of all products, of each span by span; block: (32, warps). Shared: see quant_one.cuh; behind that the codes of
// gated units and 16 bytes for each 32 of them.
#include "quant_one.cuh"
#include "quantize.cuh"
#include "route.cuh"

enum { OF_WEIGHT, OF_OTHER, OF_FLOATS };
enum { AS_IT_IS, GELU, SILU };

// `One` in launch/mat_mul_one.rs.
struct One {
    Product product;
    // f32 weights: the input. Gated units: one factor; it has the width of a group.
    Rows x;
    // The other factor, and columns from one group to the next.
    Rows up;
    u32 act, apart;
    // Weights that are read next of the experts that were chosen, if not null: of each so many bytes.
    const u8* ahead;
    u64 ahead_bytes;
    // Weights' format, blocks of a span, blocks up to the end of the product, bytes of the sums of a block.
    u32 format, blocks, end, sums;
};

// `Ones` in launch/mat_mul_one.rs.
struct Ones {
    One of[4];
    Route route;
    // Blocks of a router's product that are done, between steps 0; null: experts are chosen elsewhere.
    u32* routed;
    u64 padding;
};

// Values of a thread that are asked for at a time.
enum : int { UNITS = 2 };

__device__ __forceinline__ float gate_of(u32 act, float x) { return act == GELU ? gelu_of(x) : silu_of(x); }

// Makes the gated units of an entry, quantized.
__device__ __forceinline__ void gate(const One& one, u32 entry, const Coded& to) {
    const Product& p = one.product;
    const u32 part = p.per_expert ? entry % p.top_k : 0, row = entry / p.top_k;
    const u32 thread = threadIdx.y * 32 + threadIdx.x, threads = blockDim.y * 32;
    const float *from = one.x.row(row), *up = one.up.row(row);
#pragma unroll 1
    for (u32 first = 4 * thread; first < to.n_pad; first += 4 * threads * UNITS) {
        float4 a[UNITS], b[UNITS];
#pragma unroll
        for (int i = 0; i < UNITS; i++) {
            const u32 k = first + 4 * threads * i, column = part * to.n_in + k;
            a[i] = b[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (k >= to.n_in) continue;
            const u32 at = column / one.x.width * one.apart + column % one.x.width;
            a[i] = *(const float4*)(from + at), b[i] = *(const float4*)(up + at);
        }
#pragma unroll
        for (int i = 0; i < UNITS; i++) {
            const u32 k = first + 4 * threads * i;
            // Eight neighbouring threads have a group, so they leave together.
            if (k >= to.n_pad) break;
            const u32 act = one.act;
            const float v[4] = {gate_of(act, a[i].x) * b[i].x, gate_of(act, a[i].y) * b[i].y, gate_of(act, a[i].z) * b[i].z,
                                gate_of(act, a[i].w) * b[i].w};
            quantize4(to, 0, k, v, __activemask());
        }
    }
}

template <int TYPE> __device__ __forceinline__ void quantized(const Step& step, const One& one, u32 block) {
    const Product& p = one.product;
    const u32 index = block / one.blocks, own = block % one.blocks;
    walk_one<TYPE>(step, p, own, index, [&](const i8*& codes, const float4*& groups) {
        if (one.act == AS_IT_IS) return;
        extern __shared__ float parts[];
        const u32 n_pad = (p.n_in + STEP - 1) / STEP * STEP;
        const Coded to = {(i8*)parts + one.sums, (float4*)((i8*)parts + one.sums + n_pad), p.n_in, n_pad};
        gate(one, index, to);
        __syncthreads();
        codes = to.codes, groups = to.groups;
    }, [&](u32 matrix) {
        if (!one.ahead) return;
        const u64 thread = (own * blockDim.y + threadIdx.y) * 32 + threadIdx.x, threads = one.blocks * blockDim.y * 32;
#pragma unroll 1
        for (u64 at = 128 * thread; at < one.ahead_bytes; at += 128 * threads)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(one.ahead + matrix * one.ahead_bytes + at));
    });
}

// Pieces of f32 weights that are asked for before the input is there.
enum : int { PIECES = 4 };

// The order of accumulation is that of mat_mul_float.cu.
__device__ __forceinline__ void floats(const Step& step, const One& one, const Ones& all, u32 block) {
    const Product& p = one.product;
    const u32 lane = threadIdx.x, row = block * blockDim.y + threadIdx.y, n = p.n_in;
    const float* weights = (const float*)p.weight + (u64)(row < p.n_out ? row : p.n_out - 1) * n;
    start_next();
    float4 held[PIECES][2];
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const u32 k = 8 * lane + 256 * i;
        if (k < n) held[i][0] = ((const float4*)(weights + k))[0], held[i][1] = ((const float4*)(weights + k))[1];
    }
#pragma unroll 1
    for (u32 k = 256 * PIECES + 32 * lane; k < n; k += 1024) asm volatile("prefetch.global.L2 [%0];" ::"l"(weights + k));
    wait_for_inputs();
    if (step.count(p.kind) == 0) return;
    const float* x = one.x.row(0);
    float sum = 0.0f;
#pragma unroll 1
    for (u32 from = 8 * lane; from < n; from += 256 * PIECES) {
        float4 own[PIECES][2];
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const u32 k = from + 256 * i;
            if (k < n) own[i][0] = ((const float4*)(x + k))[0], own[i][1] = ((const float4*)(x + k))[1];
        }
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            if (from + 256 * i >= n) break;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float4 a = own[i][half], w = held[i][half];
                sum = __fmaf_rn(a.x, w.x, sum), sum = __fmaf_rn(a.y, w.y, sum);
                sum = __fmaf_rn(a.z, w.z, sum), sum = __fmaf_rn(a.w, w.w, sum);
            }
        }
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const u32 k = from + 256 * (PIECES + i);
            if (k < n) held[i][0] = ((const float4*)(weights + k))[0], held[i][1] = ((const float4*)(weights + k))[1];
        }
    }
    sum = warp_sum(sum);
    if (lane == 0 && row < p.n_out) p.out.row(0)[row] = sum;
    if (!all.routed) return;
    // The block that is the last to be done sees what all have written.
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.y == 0 && lane == 0) last = atomicAdd(all.routed, 1) == one.blocks - 1;
    __syncthreads();
    if (!last || threadIdx.y > 0) return;
    __threadfence();
    route_row<4>(all.route, 0, lane);
    if (lane == 0) *all.routed = 0;
}

extern "C" __global__ void __launch_bounds__(256, 2) mat_mul_one(const Step step, const __grid_constant__ Ones args) {
    const u32 which = (blockIdx.x >= args.of[0].end) + (blockIdx.x >= args.of[1].end) + (blockIdx.x >= args.of[2].end);
    const One& one = args.of[which];
    const u32 block = blockIdx.x - (which ? args.of[which - 1].end : 0);
    if (one.format == OF_FLOATS) return floats(step, one, args, block);
#ifdef OTHER
    if (one.format == OF_OTHER) return quantized<OTHER>(step, one, block);
#endif
    quantized<WEIGHT>(step, one, block);
}
