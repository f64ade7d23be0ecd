// Lists the entries of each expert and cuts them into spans, once for all products of a layer.
//
// The list: the number of spans, their most, (expert, first, count) of each, then entries (row · top_k + choice) expert by
// expert. In which order those of one expert come is not fixed, and no result depends on it.
//
// One block. Shared: two words for each expert.
#include "common.cuh"

// `Lists` in launch/mat_mul_experts.rs.
struct Lists {
    Rows chosen;
    u32* list;
    u32 kind, experts;
    // Most spans, and entries of a span.
    u32 most, width;
};

extern "C" __global__ void __launch_bounds__(1024) list_entries(const Step step, const Lists args) {
    extern __shared__ u32 counts[];
    u32* next = counts + args.experts;
    const u32 top_k = args.chosen.width, total = step.count(args.kind) * top_k;
    u32* entries = args.list + 2 + 3 * args.most;
    for (u32 e = threadIdx.x; e < args.experts; e += blockDim.x) counts[e] = 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < total; i += blockDim.x)
        atomicAdd(counts + __float_as_uint(args.chosen.row(i / top_k)[i % top_k]), 1u);
    __syncthreads();
    for (u32 e = threadIdx.x; e < args.experts; e += blockDim.x) {
        u32 first = 0, span = 0;
        for (u32 other = 0; other < e; other++) {
            first += counts[other];
            span += (counts[other] + args.width - 1) / args.width;
        }
        next[e] = first;
        const u32 count = counts[e];
        for (u32 done = 0; done < count; done += args.width, span++) {
            u32* item = args.list + 2 + 3 * span;
            item[0] = e, item[1] = first + done, item[2] = count - done < args.width ? count - done : args.width;
        }
        if (e + 1 == args.experts) args.list[0] = span, args.list[1] = args.most;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < total; i += blockDim.x)
        entries[atomicAdd(next + __float_as_uint(args.chosen.row(i / top_k)[i % top_k]), 1u)] = i;
}
