// What a device can do at best, and a kernel that only waits.
#include "common.cuh"

struct Measure {
    const uint4 *from;
    u32 *out;
    u64 count;
};

// Reads `count` pieces of 16 bytes, one after another.
extern "C" __global__ void read_all(const Step step, const Measure args) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x, each = gridDim.x * (u64)blockDim.x;
    u32 bits = 0;
#pragma unroll 8
    for (; i < args.count; i += each) {
        uint4 v = __ldg(args.from + i);
        bits |= v.x | v.y | v.z | v.w;
    }
    // Never so: the memory is zero. But the compiler does not know.
    if (bits) args.out[0] = bits;
}

// `count` rounds of 8 fused multiply-adds a thread.
extern "C" __global__ void multiply_add(const Step step, const Measure args) {
    float sums[8], x = (float)args.out[threadIdx.x], y = (float)args.out[threadIdx.x + 1];
#pragma unroll
    for (u32 i = 0; i < 8; i++) sums[i] = x + i;
    for (u64 r = 0; r < args.count; r++) {
#pragma unroll
        for (u32 i = 0; i < 8; i++) sums[i] = __fmaf_rn(sums[i], x, y);
    }
    float sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < 8; i++) sum += sums[i];
    if (sum == 12345.0f) args.out[0] = 1;
}

// `count` rounds of 8 products of tiles of bytes, 16 x 32 by 32 x 8, a warp.
extern "C" __global__ void dot(const Step step, const Measure args) {
    u32 a = args.out[threadIdx.x], b = args.out[threadIdx.x + 1];
    int sums[8][4] = {};
    for (u64 r = 0; r < args.count; r++) {
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};"
                         : "+r"(sums[i][0]), "+r"(sums[i][1]), "+r"(sums[i][2]), "+r"(sums[i][3])
                         : "r"(a), "r"(b));
        }
    }
    int sum = 0;
#pragma unroll
    for (u32 i = 0; i < 8; i++) sum += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
    if (sum == 12345) args.out[0] = 1;
}

// Waits for `count` nanoseconds.
extern "C" __global__ void spin(const Step step, const Measure args) {
    u64 start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < args.count);
}
