// Joins the spans of a row and head that blocks of attention_mma.cu have computed side by side.
//
// grid: (rows, heads, slices of 32 components); block: 128. Warps bring spans to shared memory, then one joins them in order.
#define QUERIES 8
#include "attention.cuh"
#include "quantize.cuh"

// `JoinArgs` in launch/attention_mma.rs.
struct Join {
    Attention attention;
    // Where results are quantized to; without codes they are written as they are.
    Coded to;
};

enum : int { THREADS = 128, SLICE = 32 };

// Of up to THREADS spans: what sums before each and its own are multiplied with. `largest` is that of all spans so far.
__device__ __forceinline__ void factors_of(const float *from, u32 pitch, u32 count, float &largest, float2 *factors, float *totals) {
    __shared__ float of_warp[THREADS / 32];
    u32 i = threadIdx.x, lane = i % 32;
    float2 part = i < count ? *(const float2 *)(from + (u64)i * pitch) : make_float2(-INFINITE, 0.0f);
    float most = part.x;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        float other = __shfl_up_sync(FULL, most, d);
        if (lane >= d) most = fmaxf(most, other);
    }
    if (lane == 31) of_warp[i / 32] = most;
    float before = __shfl_up_sync(FULL, most, 1);
    before = lane ? fmaxf(largest, before) : largest;
    __syncthreads();
    float all = largest;
#pragma unroll
    for (u32 w = 0; w < THREADS / 32; w++) {
        if (w < i / 32) before = fmaxf(before, of_warp[w]);
        all = fmaxf(all, of_warp[w]);
    }
    if (i < count) {
        join_factors(before, part.x, factors[i].x, factors[i].y);
        totals[i] = part.y;
    }
    largest = all;
}

extern "C" __global__ void __launch_bounds__(THREADS) join_spans(const Step step, const __grid_constant__ Join join) {
    start_next();
    const Attention &args = join.attention;
    __shared__ float2 factors[THREADS];
    __shared__ float totals[THREADS], values[THREADS][SLICE];
    u32 r = blockIdx.x, head = blockIdx.y, width = args.width(), pitch = width + 4, lane = threadIdx.x % 32;
    // No kernel writes the step's numbers.
    bool real = r < step.count(args.kind);
    u32 position = real ? step.position(step.row(args.kind, r)) : 0, low = first_seen(position, args.window) / PAGE / args.span;
    u32 spans = position / PAGE / args.span - low + 1;
    wait_for_inputs();
    if (!real) return;
    const float *from = args.spans + (u64)(r * args.heads + head) * args.spans_each * pitch;
    float largest = -INFINITE, total = 0.0f, all = 0.0f;
    for (u32 first = 0; first < spans; first += THREADS, from += (u64)THREADS * pitch) {
        u32 count = min(spans - first, (u32)THREADS);
        const float *slice = from + 4 + blockIdx.z * SLICE + lane;
        __syncthreads();
#pragma unroll 8
        for (u32 i = threadIdx.x / 32; i < count; i += THREADS / 32) values[i][lane] = slice[(u64)i * pitch];
        factors_of(from, pitch, count, largest, factors, totals);
        __syncthreads();
        if (threadIdx.x >= 32) continue;
#pragma unroll 4
        for (u32 i = 0; i < count; i++) {
            total = joined(total, factors[i].x, totals[i], factors[i].y);
            all = joined(all, factors[i].x, values[i][lane], factors[i].y);
        }
    }
    if (threadIdx.x >= 32) return;
    u32 d = head * args.sources[0].cache.head_dim + blockIdx.z * SLICE + lane;
    float result = all * __fdiv_rn(1.0f, total);
    if (!join.to.codes) {
        args.out.row(r)[d] = result;
        return;
    }
    // A slice is a group: eight lanes quantize four values each.
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = __shfl_sync(FULL, result, lane * 4 % 32 + i);
    if (lane < 8) quantize4(join.to, r, d - lane + 4 * lane, v, 0xff);
}
