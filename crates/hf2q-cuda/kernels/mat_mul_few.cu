// Products of quantized weights with two to four rows.
#include "quant_few.cuh"

// Most warps of a block, of which a multiprocessor has two: `Kernel::warps` in launch/mat_mul.rs.
constexpr int WARPS = ROWS == 4 && Packed<WEIGHT>::HALVES == 2 ? 5 : 8;

extern "C" __global__ void __launch_bounds__(32 * WARPS, 2) mat_mul_few(const Step step, const __grid_constant__ Products args) {
    walk_products<Few<WEIGHT, ROWS>>(step, args);
}
